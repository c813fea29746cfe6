"""Positions of another batch size or other ranks: what is refused, iterators, interrupts and `replay`.

That a position continues at the exact sample is checked by tests/test_position_machine.py.
"""

from itertools import islice

import numpy as np
import pytest
from conftest import SERIAL, THREAD
from interrupting import interrupted_start
from rank_models import batches_of

from gluonloader import BatchSampler, DataLoader, IterableDataset, RandomSampler, ShardedSampler, WeightedSampler
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler

# -- Errors ---------------------------------------------------------------------------------------------------------


def state_after(loader, count):
    list(islice(loader, count))
    return loader.state_dict()


def share(ranks, index, **arguments):
    return {"sampler": ShardedSampler(RandomSampler(48, seed=1), ranks, index, "keep"), **arguments}


def test_another_batch_size_is_refused_without_the_flag_and_both_sizes_are_named():
    state = state_after(DataLoader(range(48), 4, seed=1), 2)
    loader = DataLoader(range(48), 6, seed=1)
    before = state_after(loader, 3)
    size = r"batch_size=4: this loader has batch_size=6; .* load_state_dict\(state, new_batch_size=True\)"
    for wrong, flag, text in [
        (state, False, f"state: {size}"),
        (state, "yes", "new_batch_size='yes'"),
        ({**state, "check": "0"}, True, "state: check="),
        ({**state, "offset": 7}, True, "state: "),
    ]:
        with pytest.raises(ValueError, match=text):
            loader.load_state_dict(wrong, new_batch_size=flag)
        assert loader.state_dict() == before
    loader.load_state_dict(state, new_batch_size=True)
    assert next(iter(loader)).tolist() == list(range(8, 14))


def test_another_global_batch_is_refused_and_both_are_named():
    state = state_after(DataLoader(range(48), 4, seed=1, **share(4, 0)), 2)
    DataLoader(range(48), 4, seed=1, **share(2, 0)).load_state_dict(state)  # only the number of ranks differs
    text = r"all ranks together had batches of 4 x 4 = 16 samples, but here they have batches of 2 x 6 = 12 samples"
    with pytest.raises(ValueError, match=text):
        DataLoader(range(48), 6, seed=1, **share(2, 0)).load_state_dict(state)


def test_carried_samples_have_to_fit_into_the_first_batch():
    state = state_after(DataLoader(range(7), 4, last_batch="rollover", seed=1), None)
    loader = DataLoader(range(7), 3, last_batch="rollover", seed=1)
    with pytest.raises(ValueError, match=r"carried over 3 samples, which do not fit into the first batch"):
        loader.load_state_dict(state, new_batch_size=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda size: {"batch_sampler": FixedBucketSampler(range(1, 41), size, shuffle=True, seed=1)},
        lambda size: {"batch_sampler": SortedBucketSampler(range(1, 41), size, shuffle=True, seed=1)},
        lambda size: {"batch_sampler": [list(range(start, start + size)) for start in range(0, 40, size)]},
    ],
)
def test_a_batch_sampler_that_chooses_its_batches_cannot_be_mapped(make):
    state = state_after(DataLoader(range(40), seed=1, **make(4)), 2)
    with pytest.raises(ValueError, match=r"new_batch_size=True: a \w+ chooses the samples of each batch itself"):
        DataLoader(range(40), seed=1, **make(5)).load_state_dict(state, new_batch_size=True)


@pytest.mark.filterwarnings("ignore:resuming IterableDataset")
def test_an_iterable_dataset_cannot_be_mapped():
    state = state_after(DataLoader(IterableDataset(lambda: iter(range(40)), num_shards=2), 4, seed=1), 2)
    other = DataLoader(IterableDataset(lambda: iter(range(40)), num_shards=2), 5, seed=1)
    with pytest.raises(ValueError, match="new_batch_size=True: the positions of an iterable dataset count batches"):
        other.load_state_dict(state, new_batch_size=True)


def test_a_distributed_sampler_keeps_its_number_of_ranks():
    distributed = pytest.importorskip("torch.utils.data").DistributedSampler

    def make(size, ranks):
        return DataLoader(range(48), size, sampler=distributed(range(48), ranks, 0, seed=1), seed=1)

    state = state_after(make(4, 2), 2)
    other = make(6, 2)
    other.load_state_dict(state, new_batch_size=True)
    order = list(distributed(range(48), 2, 0, seed=1))
    assert [batch.tolist() for batch in other] == batches_of(order[8:], 6, "keep")[0]
    with pytest.raises(ValueError, match=r"num_replicas=2: this DistributedSampler has 4, .* pass ranks to the loader"):
        make(2, 4).load_state_dict(state, new_batch_size=True)
    with pytest.raises(ValueError, match="num_replicas=2: this DistributedSampler has 4"):
        make(4, 4).load_state_dict(state)


# -- Iterators, interrupts, replay ----------------------------------------------------------------------------------


def test_an_iterator_loads_a_new_batch_size(any_way):
    state = state_after(DataLoader(range(48), 4, True, seed=1), 3)
    order = list(RandomSampler(48, seed=1))
    with any_way.loader(range(48), 5, True, seed=1) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ValueError, match="batch_size=4"):
            iterator.load_state_dict(state)
        iterator.load_state_dict(state, new_batch_size=True)
        assert [batch.tolist() for batch in iterator] == batches_of(order[12:], 5, "keep")[0]


def test_flush_returns_to_the_last_delivered_batch_of_a_resumed_epoch():
    sampler = WeightedSampler(np.ones(40), seed=2)
    order = list(WeightedSampler(np.ones(40), seed=2))
    state = state_after(DataLoader(range(40), 3, sampler=WeightedSampler(np.ones(40), seed=2), seed=1), 3)
    with THREAD.loader(range(40), 4, sampler=sampler, seed=1) as loader:
        loader.load_state_dict(state, new_batch_size=True)
        iterator = iter(loader)
        read = [next(iterator).tolist() for _ in range(2)]
        iterator.flush()
        assert read + [batch.tolist() for batch in iterator] == batches_of(order[9:], 4, "keep")[0]


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupted_start_of_a_resumed_epoch_repeats_it(any_way, alarms, ranks):
    def make(way, size, count):
        return way.loader(range(48), size, **share(count, 0)) if ranks > 1 else way.loader(range(48), size, True)

    state = state_after(make(SERIAL, 4, 2), 3)
    with make(any_way, 8, 1) as loader:
        loader.load_state_dict(state, new_batch_size=True)
        expected = [batch.tolist() for batch in loader]
        for point in range(0, 100, 3 if any_way is SERIAL else 17):
            loader.load_state_dict(state, new_batch_size=True)
            if where := interrupted_start(loader, point):
                assert [batch.tolist() for batch in loader] == expected, where


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_replay_knows_a_batch_or_says_why_not(last_batch):
    def make(ranks, size):
        return DataLoader(range(48), size, seed=1, last_batch=last_batch, **share(ranks, 0))

    loader = make(2, 7)
    loader.load_state_dict(state_after(make(4, 4), 2), new_batch_size=True)
    known = loader.indices(0, 2)
    with pytest.raises(ValueError, match="this epoch was resumed at batch 2 with another batch_size"):
        loader.indices(0, 1)
    if last_batch == "rollover":
        with pytest.raises(ValueError, match="epoch 0 was resumed with another batch_size, so the samples that it"):
            loader.indices(1, 0)
    assert [batch.tolist() for batch in loader][0] == known
    second = [batch.tolist() for batch in loader]
    assert [loader.indices(1, number) for number in range(len(second))] == second
    loader = make(2, 8)  # the same global batch: later batches have the same numbers and samples as without a resume
    loader.load_state_dict(state_after(make(4, 4), 2))
    assert [loader.indices(0, 2)] == [batch.tolist() for batch in loader]
    with pytest.raises(ValueError, match="this epoch was resumed at batch 2 with another batch_size"):
        loader.replay(0, 0)


def test_a_batch_sampler_of_the_user_continues_as_well():
    def make(size):
        return DataLoader(range(20), batch_sampler=BatchSampler(RandomSampler(20, seed=4), size, "rollover"), seed=1)

    loader = make(6)
    loader.load_state_dict(state_after(make(3), 2), new_batch_size=True)
    order = list(RandomSampler(20, seed=4))
    batches, left = batches_of(order[6:], 6, "rollover")
    assert [batch.tolist() for batch in loader] == batches
    assert next(iter(loader)).tolist()[: len(left)] == left
