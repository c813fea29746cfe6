"""Options of gluonloader behind torch's interface: `executor`, and about samples `on_error`, `concurrency`; `stats`."""

import os
import random
import threading

import pytest

import gluonloader
from gluonloader import SKIP
from gluonloader.options import OnError

from .sides import OURS, Range, continued, left_after, torch

data = torch.utils.data


class Faulty(data.Dataset):
    """Sample 7 cannot be read."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 7:
            raise OSError("cannot read 7")
        return torch.tensor([index]), index


class FaultyInBulk(Faulty):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def mark(error, bad):
    return torch.tensor([-1]), -1


KINDS = {
    "one by one": (Faulty, list(range(12))),
    "in bulk": (FaultyInBulk, list(range(12))),
    "subset": (lambda: data.Subset(Faulty(), range(5, 12)), list(range(5, 12))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collate_fn", [None, data.default_collate, list], ids=["default", "torch", "own"])
def test_a_bad_sample_is_left_out_or_replaced(kind, collate_fn, workers):
    make, keys = KINDS[kind]

    def read(on_error):
        loader = OURS(make(), 4, num_workers=workers, on_error=OnError(on_error, 1), collate_fn=collate_fn)
        batches = [[n for _, n in batch] if collate_fn is list else batch[1].tolist() for batch in loader]
        return [n for batch in batches for n in batch], loader.stats()

    for on_error in ("skip", lambda error, bad: SKIP):
        numbers, stats = read(on_error)
        assert numbers == [n for n in keys if n != 7]
        assert (stats.errors, stats.skipped, stats.samples) == (1, 1, len(keys) - 1)
    assert read(mark)[0] == [-1 if n == 7 else n for n in keys]
    numbers, stats = read("replace")
    assert len(numbers) == len(keys)
    assert numbers[keys.index(7)] in {n for n in keys[4 * (keys.index(7) // 4) :][:4] if n != 7}
    assert (stats.errors, stats.skipped) == (1, 0)


def test_too_many_bad_samples_end_the_epoch(workers):
    with pytest.raises(RuntimeError, match="limit=0 of on_error allows"):
        list(OURS(Faulty(), 4, num_workers=workers, on_error=OnError("skip", 0)))


class Meeting(data.Dataset):
    """Each sample waits until three of them are read at the same time."""

    def __init__(self):
        self.barrier = threading.Barrier(3)

    def __len__(self):
        return 9

    def __getitem__(self, index):
        self.barrier.wait(60)
        return index


def test_several_samples_are_read_at_the_same_time(workers):
    loader = OURS(Meeting(), 3, num_workers=workers, multiprocessing_context="fork" if workers else None, concurrency=3)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_tensors_with_on_error(workers):
    loader = OURS(data.TensorDataset(torch.arange(5)), 2, num_workers=workers, on_error="skip")
    assert [batch.tolist() for (batch,) in loader] == [[0, 1], [2, 3], [4]]


def test_statistics_of_persistent_workers_are_those_of_all_iterators():
    loader = OURS(range(8), 2, num_workers=1, persistent_workers=True)
    with pytest.raises(RuntimeError, match="iterate over the loader first"):
        loader.stats()
    for _ in range(2):
        list(loader)
    assert (loader.stats().batches, loader.stats().num_workers) == (8, 1)
    loader.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "ignore"}, "on_error='ignore': must be"),
        ({"concurrency": 0}, "concurrency=0: must be"),
        ({"executor": "threads"}, "executor='threads'"),
        ({"executor": "thread"}, "num_workers=0: executor='thread' needs num_workers >= 1"),
        ({"executor": "serial", "num_workers": 1}, "has no workers"),
        ({"dataset": Range(3), "on_error": "skip"}, "on_error='skip': torch's iterable datasets"),
        ({"dataset": Range(3), "concurrency": 2}, "concurrency=2: torch's iterable datasets"),
    ],
)
def test_wrong_arguments_are_named_in_the_constructor(options, text):
    with pytest.raises(ValueError, match=text):
        OURS(**{"dataset": Faulty(), **options})


class Where(data.Dataset):
    """Each sample tells in which process and thread it was read, and draws from the generator of its batch."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return os.getpid(), threading.get_ident(), float(gluonloader.get_rng().random())


def test_workers_in_threads_read_in_the_program_and_leave_its_generators_alone():
    calls = []
    threads = torch.get_num_threads()
    serial = [batch for _, _, batch in OURS(Where(), 4, shuffle=True, generator=torch.Generator().manual_seed(1))]
    generator = torch.Generator().manual_seed(1)
    loader = OURS(
        Where(), 4, shuffle=True, generator=generator, num_workers=2, executor="thread", worker_init_fn=calls.append
    )
    states = random.getstate(), torch.get_rng_state().tolist()
    for (pids, idents, drawn), expected in zip(loader, serial, strict=True):
        assert set(pids.tolist()) == {os.getpid()}
        assert threading.get_ident() not in idents.tolist()
        assert torch.equal(drawn, expected)
    assert random.getstate() == states[0]
    assert (sorted(calls), data.get_worker_info(), torch.get_num_threads()) == ([0, 1], None, threads)
    assert loader.stats().executor == "thread"


def test_a_position_in_threads_is_saved_and_loaded():
    loader, resumed = (OURS(range(20), 4, num_workers=2, executor="thread") for _ in range(2))
    state, rest = left_after(loader, 1)
    assert continued(resumed, state) == rest
    assert resumed.replay(0).tolist() == [0, 1, 2, 3]


def test_without_workers_executor_auto_has_no_effect():
    assert [batch.item() for batch in OURS([1, 2], executor="auto")] == [1, 2]
