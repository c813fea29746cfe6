"""`replay`, `seek` and `iterator.last` with samples that raise errors, and with samples that wait."""

import gc
import json
import os
import threading

import numpy as np
import pytest
from conftest import FORK, SERIAL, in_child
from faulty import AsyncFaulty, AsyncFaultyInBulk, Faulty, FaultyInBulk

from gluonloader import SKIP, BatchSampler, DataLoader, FileDataset, IterableDataset, get_rng
from gluonloader.errors import TooManyErrors
from gluonloader.options import OnError

LENGTH, SIZE = 43, 4
BROKEN = {2, 7, 8, 9, 10, 11, 30}  # among them all samples of batch 2, in the order of the dataset
LEFT_OUT, GOOD = 2, range(12, 24)


def broken(kind=Faulty):
    return kind(LENGTH, bad=BROKEN)


def decide(error, sample):
    return SKIP if sample == 8 else np.array([sample, get_rng().random()])


def batchify(samples):
    """Draws from the generator of the batch."""
    return np.stack(samples) + get_rng().random()


def delivered(loader):
    iterator = iter(loader)
    return {iterator.last.number: batch.tobytes() for batch in iterator}


@pytest.mark.parametrize("on_error", ["skip", "replace", decide])
@pytest.mark.parametrize("kind", [Faulty, FaultyInBulk, AsyncFaulty, AsyncFaultyInBulk])
def test_replay_skips_and_replaces_the_same_samples_and_counts_none(kind, on_error):
    options = {"on_error": OnError(on_error, 7)}
    with SERIAL.loader(broken(kind), SIZE, batchify_fn=batchify, **options) as loader:
        batches, counted = delivered(loader), (loader.stats(), loader.state_dict())
        with FORK.loader(broken(kind), SIZE, batchify_fn=batchify, concurrency=3, **options) as other:
            for number, batch in batches.items():
                assert loader.replay(0, number).tobytes() == other.replay(0, number).tobytes() == batch
            assert delivered(other) == batches
        if on_error == "skip":
            with pytest.raises(ValueError, match=f"batch={LEFT_OUT}: all samples of this batch .* raised errors"):
                loader.replay(0, LEFT_OUT)
        assert (loader.stats(), loader.state_dict()) == counted
        assert counted[0].errors == len(BROKEN)


def test_last_and_indices_name_the_samples_that_were_drawn_also_those_that_were_left_out(way):
    with way.loader(broken(), SIZE, on_error=OnError("skip", 7)) as loader:
        iterator, seen = iter(loader), []
        for batch in iterator:
            drawn = iterator.last.indices
            assert drawn == loader.indices(0, iterator.last.number)
            assert batch[:, 0].tolist() == [index for index in drawn if index not in BROKEN]
            seen.append(iterator.last.number)
        assert seen == [number for number in range(11) if number != LEFT_OUT]


def test_after_seek_the_count_of_errors_starts_at_zero(any_way):
    def read(loader):
        numbers, iterator = [], iter(loader)
        with pytest.raises(TooManyErrors, match="5 samples of epoch 0 .* more than limit=4 of on_error allows"):
            numbers.extend(iterator.last.number for _ in iterator)
        return numbers, loader.state_dict()["errors"]

    options = {"on_error": OnError("skip", 4), "batch_sampler": BatchSampler(range(LENGTH), SIZE)}
    with any_way.loader(broken(), **options) as loader, any_way.loader(broken(), **options) as other:
        loader.seek(0, 1)
        other.load_state_dict(json.dumps(loader.state_dict()))
        assert read(loader) == read(other) == ([1], 1)
        loader.seek(0, LEFT_OUT + 1)
        assert list(delivered(loader)) == list(range(LEFT_OUT + 1, 11))
        assert loader.stats().errors == 1 + 1


def refuse_some(number):
    if number in (1, 5, 9, 13, 20):
        raise ValueError("broken")
    return number


def test_batches_of_an_iterable_dataset_without_a_sample_are_an_error():
    data = IterableDataset(lambda: iter(range(50))).transform(refuse_some)
    with DataLoader(IterableDataset(data, num_shards=4), 4, seed=1, on_error=OnError("skip", 9)) as loader:
        batches = delivered(loader)
        assert 1 not in batches
        for number, batch in batches.items():
            assert loader.replay(0, number, read=True).tobytes() == batch
        for method in (lambda: loader.replay(0, 1, read=True), lambda: loader.seek(0, 1)):
            with pytest.raises(ValueError, match="all its samples raised errors .*; the next number is 2"):
                method()
        assert loader.stats().errors == 5


# -- what replay starts ends with the loader ---------------------------------------------------------------------------


def event_loops():
    return {thread for thread in threading.enumerate() if thread.name == "gluonloader-loop"}


@pytest.mark.parametrize("end", [lambda loaders: loaders[0].close(), list.clear], ids=["close", "delete"])
def test_the_event_loop_of_replay_ends_when_the_loader_is_closed_or_deleted(end):
    before = event_loops()
    loaders = [DataLoader(broken(AsyncFaulty), SIZE, sampler=GOOD, seed=1, num_workers=1)]
    loaders[0].replay(0, 0)
    (loop,) = event_loops() - before
    end(loaders)
    gc.collect()
    loop.join(60)
    assert not loop.is_alive()


def test_replay_in_a_forked_child_and_with_another_seed_uses_a_new_event_loop():
    before = event_loops()
    with (
        DataLoader(broken(AsyncFaulty), SIZE, sampler=GOOD, num_workers=1) as loader,
        DataLoader(broken(AsyncFaulty), SIZE, sampler=GOOD, num_workers=1) as other,
    ):
        next(iter(loader))
        first = loader.replay(0, 0).tobytes()
        (loop,) = event_loops() - before
        assert in_child(lambda: str(loader.replay(0, 0).tobytes() == first)) == "True"
        loader.load_state_dict(other.state_dict())
        assert loader.replay(0, 0).tobytes() != first
        loop.join(60)
        (new_loop,) = event_loops() - before
    assert new_loop is not loop


def test_files_are_replayed(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number] * 3))
    data = FileDataset(f"{tmp_path}/*.bin").transform(lambda text: np.frombuffer(text, np.uint8) + get_rng().random())
    with FORK.loader(data, 2, True, concurrency=2) as loader:
        batches = delivered(loader)
        os.remove(tmp_path / "3.bin")
        damaged = next(number for number in range(5) if 3 in loader.indices(0, number))
        for number, batch in batches.items():
            if number != damaged:
                assert loader.replay(0, number).tobytes() == batch
        with pytest.raises(FileNotFoundError, match=r"3\.bin"):
            loader.replay(0, damaged)
