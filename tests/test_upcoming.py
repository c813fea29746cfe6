"""`DataLoader.upcoming`: the indices that come next are those that are delivered next."""

from itertools import islice

import numpy as np
import pytest
from conftest import ANY, SERIAL, THREAD
from rank_models import Restarting
from samples import FirstWaits, Keys

from gluonloader import (
    BatchSampler,
    DataLoader,
    MixtureSampler,
    RandomSampler,
    Ranks,
)
from gluonloader.text import PackingSampler, TokenBatchSampler

LENGTHS = np.random.default_rng(1).integers(1, 9, 40)


SAMPLERS = {  # others, also on ranks, are in tests/test_position_machine.py
    "random, of its own seed": lambda: RandomSampler(40),
    "mixture": lambda: MixtureSampler([30, 10], [1, 2], num_samples=25, seed=1),
    "rows": lambda: PackingSampler(LENGTHS, 8, window=9, seed=1),
    "rows of a mixture": lambda: PackingSampler(
        LENGTHS, 8, MixtureSampler([30, 10], [1, 2], num_samples=25, seed=1), window=9, seed=1
    ),
}


def delivered(iterator):
    return [key for batch in iterator for key in batch]


def rest_of(loader, iterator, epochs=2):
    keys = delivered(iterator)
    for _ in range(epochs):
        keys += delivered(loader)
    return keys


@pytest.mark.parametrize("way", ANY, ids=str)
@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_they_are_delivered_next(name, last_batch, way):
    loader = way.loader(Keys(40), 3, sampler=SAMPLERS[name](), last_batch=last_batch, batchify_fn=list)
    with loader:
        at_start = loader.upcoming(10)
        iterator = iter(loader)
        first = delivered(islice(iterator, 2))
        assert at_start[: len(first)] == first
        keys = loader.upcoming(60)
        assert loader.upcoming(7) == keys[:7]
        assert rest_of(loader, iterator, epochs=6)[:60] == keys


def test_batches_of_a_batch_sampler():
    rollover = BatchSampler(RandomSampler(40, seed=2), 7, "rollover")
    for batches in (TokenBatchSampler(LENGTHS, 30, seed=1), rollover, [[3, 1], [2]]):
        with DataLoader(Keys(40), batch_sampler=batches, batchify_fn=list) as loader:
            iterator = iter(loader)
            next(iterator)
            keys = loader.upcoming(9)
            assert rest_of(loader, iterator, epochs=9)[:9] == keys


def test_batches_that_were_delivered_out_of_order_are_left_out(tmp_path):
    dataset = FirstWaits(40, tmp_path / "go")
    with THREAD.loader(dataset, 1, in_order=False, batchify_fn=list) as loader:
        iterator = iter(loader)
        got = delivered(islice(iterator, 5))
        assert 0 not in got
        keys = loader.upcoming(35)
        assert sorted(keys + got) == list(range(40))
        assert keys[0] == 0
        dataset.go.touch()


def test_what_comes_next_may_be_unknown():
    with SERIAL.loader(Keys(40), 3, sampler=Restarting(range(40))) as loader:
        with pytest.raises(ValueError, match="sampler: this Restarting is your own, so what it yields next"):
            loader.upcoming(3)
    with SERIAL.loader(Keys(40), 3, shuffle=True, last_batch="rollover", ranks=Ranks(0, 3)) as loader:
        list(loader)
        with pytest.raises(ValueError, match="the indices that the other ranks have carried over are not known here"):
            loader.upcoming(3, all_ranks=True)


def test_an_empty_epoch_ends_the_search():
    with SERIAL.loader([], 3) as loader:
        assert loader.upcoming(5) == []


@pytest.mark.parametrize("packs", [False, True], ids=["mixture", "rows"])
@pytest.mark.parametrize("flushes", [False, True])
def test_to_look_does_not_apply_new_weights(packs, flushes):
    def make():
        mixture = MixtureSampler([600, 600], weights=[1, 0], num_samples=1000, seed=1)
        rows = PackingSampler(np.full(1200, 4), 8, mixture, window=40, seed=1)
        sampler = rows if packs else mixture
        return mixture, DataLoader(Keys(1200), 8, sampler=sampler, batchify_fn=list, seed=1)

    def read(looks):
        mixture, loader = make()
        iterator = iter(loader)
        batches = [next(iterator) for _ in range(3)]
        mixture.weights = [0.2, 0.8]
        if flushes:
            iterator.flush()
        if looks:
            for batch in (0, 9, 30):
                loader.indices(0, batch), loader.replay(0, batch)
            found = loader.upcoming(40)
            assert loader.upcoming(40) == found
            assert mixture.weights == pytest.approx([0.2, 0.8])
        batches += iterator
        if looks and flushes:
            assert found == [key for batch in batches[3:] for key in batch][:40]
        return batches

    assert read(looks=True) == read(looks=False)


def test_to_look_far_back_forgets_nothing_of_where_the_loader_is(monkeypatch):
    sampler = MixtureSampler([10**6, 10**6], num_samples=2_000_000, seed=1)
    loader = DataLoader(Keys(2_000_000), 1000, sampler=sampler, batchify_fn=list, seed=1)
    loader.seek(0, 1500)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    calls, advance = [], sampler._mixer.advance
    monkeypatch.setattr(sampler._mixer, "advance", lambda *arguments: calls.append(1) or advance(*arguments))
    loader.indices(0, 900)
    before = len(calls)
    for _ in range(20):
        next(iterator)
    assert before > 100
    assert len(calls) - before < 10
