"""`ranks` for datasets with `__getitem__`: which rank reads what, what is refused or compared, and states."""

import json
import threading
from itertools import islice

import numpy as np
import pytest
from conftest import load_or_skip
from mistakes import mistakes
from rank_models import Counting, CountingBatches, ForeignBatches, Restarting

from gluonloader import (
    DataLoader,
    RandomSampler,
    Ranks,
    ShardedSampler,
    SimpleDataset,
    get_rng,
    merge_states,
)
from gluonloader.buckets import SplitSampler
from gluonloader.options import OnError


def loaders(count, policy=None, length=20, size=2, **options):
    """The loaders of all ranks, over the numbers below `length`."""
    options = {"seed": 0, **options}
    sizes = {} if "batch_sampler" in options else {"batch_size": size}
    return [DataLoader(range(length), ranks=Ranks(index, count, policy), **sizes, **options) for index in range(count)]


def lists(batches):
    return [batch.tolist() for batch in batches]


def flat(batches):
    return [key for batch in batches for key in batch]


# -- which rank reads what ---------------------------------------------------------------------------------------------


def test_by_default_all_ranks_have_equally_many_samples():
    assert [flat(lists(loader)) for loader in loaders(3, length=7)] == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]


def test_ranks_draw_different_random_numbers():
    noise = SimpleDataset(range(8)).transform(lambda index: get_rng().integers(2**62))
    for order in ({"batch_size": 2}, {"batch_sampler": [[index] for index in range(8)]}):
        drawn = [DataLoader(noise, seed=1, ranks=(index, 4), **order) for index in range(4)]
        assert len({number for loader in drawn for number in flat(lists(loader))}) == 8


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_without_shuffling_no_seed_is_needed():
    assert lists(DataLoader(range(4), 2, ranks=(1, 2))) == [[1, 3]]


def test_a_rank_whose_samples_are_all_discarded_is_told():
    with pytest.warns(RuntimeWarning, match="drops all 2 samples of rank 1, which are fewer than batch_size=3"):
        DataLoader(range(4), 3, last_batch="discard", ranks=(1, 2))


def test_a_seeded_generator_of_torch_is_accepted():
    torch = load_or_skip("torch")

    def loader(index):
        sampler = torch.utils.data.RandomSampler(range(10), generator=torch.Generator().manual_seed(3))
        with pytest.warns(RuntimeWarning, match="2 ranks divide its order"):
            return DataLoader(range(10), 2, sampler=sampler, ranks=(index, 2))

    ranks = [loader(index) for index in range(2)]
    for _ in range(2):  # the generator advances equally on all ranks
        assert sorted(flat(lists(ranks[0]) + lists(ranks[1]))) == list(range(10))


# -- comparisons -------------------------------------------------------------------------------------------------------


def compared(*options):
    """The errors of ranks that start an epoch at the same time, "" for none; one dict of options for each rank."""
    barrier, values, errors = threading.Barrier(len(options), timeout=60), [0] * len(options), [""] * len(options)

    def start(index):
        def gather(value):
            values[index] = value
            barrier.wait()
            gathered = list(values)
            barrier.wait()
            return gathered

        given = {"length": 8, "epoch": 0, "batch": 0, "policy": None, "batch_size": 2, **options[index]}
        length, epoch, batch = given.pop("length"), given.pop("epoch"), given.pop("batch")
        ranks = Ranks(index, len(options), given.pop("policy"), gather=gather)
        loader = DataLoader(range(length), ranks=ranks, **given)
        loader.seek(epoch, batch)
        try:
            for _ in range(2):
                list(loader)
        except ValueError as error:
            errors[index] = str(error)

    threads = [threading.Thread(target=start, args=(index,)) for index in range(len(options))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_ranks_that_agree_are_compared_without_a_word():
    assert compared({}, {}, {}) == ["", "", ""]
    assert compared(*[{"shuffle": True, "seed": -(2**63)}] * 2) == ["", ""]
    assert compared(*[{"sampler": Restarting([np.int64(3), 1, "a" and 2])}] * 2) == ["", ""]
    assert compared(*[{"batch_size": None, "batch_sampler": ForeignBatches(8)}] * 2) == ["", ""]
    assert compared(*[{"length": 9, "policy": "uneven", "batch": batch} for batch in (2, 1)]) == ["", ""]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"length": 9}, "len(dataset)=9, unlike rank 0"),
        ({"batch_size": 3}, "batch_size=3, unlike rank 0"),
        ({"seed": 2}, "seed=2, unlike rank 0"),
        ({"epoch": 1}, "epoch=1, unlike rank 0"),
        ({"batch": 1}, "delivered 1 batch of the epoch, unlike rank 0"),
        ({"sampler": Restarting([4, 5])}, "len(sampler)=2, unlike rank 0"),
    ],
)
def test_a_difference_between_ranks_is_an_error_on_each_rank(other, text):
    errors = compared({"seed": 1}, {"seed": 1, **other}, {"seed": 1})
    assert errors[1].startswith(f"ranks: rank 1 has {text}; the ranks divide one order, so pass the same")
    assert errors[0].startswith("ranks: rank 0 has ")
    assert ", unlike rank 1;" in errors[0]


def test_orders_that_differ_are_an_error():
    errors = compared({"sampler": Restarting([1, 2, 3])}, {"sampler": Restarting([1, 3, 2])})
    assert errors[1].startswith("ranks: rank 1 has other first indices in the order, unlike rank 0")


def test_a_comparison_changes_neither_the_order_nor_the_global_generators():
    class Permutation(Restarting):
        def __iter__(self):
            return iter(np.random.permutation(self.order).tolist())

    def order(gather):
        np.random.seed(3)
        loader = DataLoader(range(9), 2, sampler=Permutation(range(9)), ranks=Ranks(0, 2, gather=gather))
        return lists(loader)

    with pytest.warns(RuntimeWarning, match="2 ranks divide its order"):
        expected = order(None)
    assert order(lambda value: [value, value]) == expected


def test_a_gather_that_does_not_return_the_values_of_all_ranks():
    loader = DataLoader(range(4), 2, ranks=Ranks(0, 2, gather=lambda value: [value]))
    for _ in range(2):
        with pytest.raises(ValueError, match="return the argument of each rank, in the order of the ranks"):
            iter(loader)


# -- states ------------------------------------------------------------------------------------------------------------


def run(ranks, steps, state=None):
    """What the ranks deliver in so many steps, and their states."""
    delivered, states = [], []
    for loader in ranks:
        if state is not None:
            loader.load_state_dict(state)
        delivered += flat(lists(islice(loader, steps)))
        states.append(json.loads(json.dumps(loader.state_dict())))
    return delivered, states


def test_the_length_is_that_of_a_whole_epoch_with_any_number_of_ranks():
    ranks = loaders(2)
    iterators = list(map(iter, ranks))
    for _ in range(2):
        for iterator in iterators:
            next(iterator)
    state = merge_states([loader.state_dict() for loader in ranks])
    for count, left in ((1, 6), (2, 3), (5, 2)):
        loader = loaders(count)[0]
        loader.load_state_dict(state)
        assert (len(loader), len(list(loader)), len(loader)) == (10 // count, left, 10 // count)


def test_with_rollover_a_rank_that_has_finished_a_later_epoch_is_not_merged():
    ranks = loaders(3, "uneven", length=7, size=1, last_batch="rollover")
    for loader in ranks:
        list(loader)
    for loader in ranks:  # the last two ranks have only two batches, and have finished
        list(islice(loader, 2))
    with pytest.raises(ValueError, match="rank 1 has finished epoch 1, .* save while no rank has finished"):
        merge_states(loader.state_dict() for loader in ranks)


def test_ranks_that_have_delivered_as_many_batches_from_different_places_are_not_merged():
    _, states = run(loaders(2, shuffle=True), 2)
    _, smaller = run(loaders(2, size=1, shuffle=True), 1)
    resumed = loaders(2, shuffle=True)
    for loader in resumed:
        loader.load_state_dict(merge_states(smaller), new_batch_size=True)
        next(iter(loader))
    others = [loader.state_dict() for loader in resumed]
    assert [state["batch"] for state in (*states, *others)] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="rank 1 has another offset than rank 0"):
        merge_states([states[0], others[1]])
    assert merge_states(others)


def test_a_resumed_epoch_of_which_nothing_was_drawn_names_the_right_batch():
    _, states = run(loaders(2, length=3, size=1, shuffle=True), 1)
    (loader,) = loaders(1, length=3, size=1, shuffle=True)
    loader.load_state_dict(states[0], new_batch_size=True)
    iterator = iter(loader)
    with pytest.raises(ValueError, match="this epoch was resumed at batch 1 with another batch_size or other ranks"):
        loader.indices(0, 0)
    assert [loader.indices(0, 1)] == [batch.tolist() for batch in iterator]


@pytest.mark.filterwarnings("ignore:.* ranks divide its order")
def test_a_position_of_ranks_with_a_stateful_sampler_needs_ranks_in_a_single_process():
    state = run(loaders(2, sampler=Counting(20)), 2)[1][0]
    with pytest.raises(ValueError, match=r"ranks=2: .*pass ranks=\(0, 1\) to continue in a single process"):
        DataLoader(range(20), 2, sampler=Counting(20), seed=0).load_state_dict(state)
    loaders(1, sampler=Counting(20))[0].load_state_dict(state)


@pytest.mark.filterwarnings("ignore:.* ranks divide its order")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_sampler_with_a_state_continues_where_the_ranks_have_saved(count):
    def ranks(count):
        return [loaders(count, "uneven", batch_sampler=CountingBatches(20))[index] for index in range(count)]

    first, states = run(ranks(2), 3)
    rest, _ = run(ranks(count), 20, merge_states(states))
    assert sorted(first + rest) == sorted(flat(ForeignBatches(20)))


class Endless:
    def __iter__(self):
        return iter([[0, 1]])


PART = SplitSampler(9, 2, 0, seed=1)


def states():
    return run(loaders(2, shuffle=True), 1)[1]


@mistakes(
    globals(),
    r"""
DataLoader(range(9), ranks=(0, 2), batch_sampler=Endless())
    -> batch_sampler=...: it has no length, ... add a method __len__...
DataLoader(range(9), 2, ranks=(0, 2), sampler=iter([1, 2])) -> ...it can be iterated only once...
DataLoader(range(9), ranks=(0, 2), batch_sampler=BatchSampler(range(9), 2, "rollover"))
    -> ...pass sampler=..., batch_size=... and last_batch=...
DataLoader(range(9), ranks=(0, 2), batch_sampler=BatchSampler(RandomSampler(9), 2))
    -> ...this RandomSampler has no seed...
DataLoader(range(9), 2, ranks=(0, 2), sampler=PART)
    -> ...SplitSampler... already divides the samples...
DataLoader(range(9), 2, ranks=Ranks(0, 2, shard_lengths=[4, 5])) -> shard_lengths=...: only iterable... remove...
DataLoader(range(9), 2, ranks=3) -> ranks=3: must be (index, count), 'env', 'torch', 'mpi', or a gluonloader.Ranks
merge_states(states()[:1]) -> states: those of ranks [1] are missing; pass the states of all 2 ranks
merge_states([states()[0], states()[0]]) -> states: rank 0 comes twice; pass one state for each rank
merge_states([states()[0], run(loaders(2, shuffle=True), 2)[1][1]]) -> ...rank 1 has another batch than rank 0...
merge_states([states()[0], run(loaders(2, shuffle=True, seed=3), 1)[1][1]]) -> ...another seed than rank 0...
merge_states([states()[0], run(loaders(2), 1)[1][1]]) -> ...divide different orders...
merge_states([states()[0], run(loaders(3, shuffle=True), 1)[1][1]]) -> ...ranks=3: another rank has ranks=2...
merge_states([states()[0], DataLoader(range(20), 2).state_dict()]) -> ...saved by a loader without `ranks`...
merge_states([states()[0], DataLoader(IterableDataset(range(9)), 2).state_dict()]) -> ...sampler...
merge_states([states()[0], {**states()[1], "batch": 0}]) -> ...check...
""",
)
def test_mistakes(mistake):
    mistake.check()


def test_errors_of_all_ranks_count_in_a_merged_state():
    broken, states = SimpleDataset(range(20)).transform(lambda index: 1 // (index > 7)), []
    for index in range(2):
        iterator = iter(DataLoader(broken, 2, seed=0, ranks=(index, 2), on_error=OnError("skip", 100)))
        next(iterator)  # the first four samples of this rank are skipped
        states.append(iterator.state_dict())
    assert [state["errors"] for state in [*states, merge_states(states)]] == [4, 4, 8]


def test_a_dataset_that_grows_is_read_at_its_first_length():
    data = list(range(8))
    loader = DataLoader(data, 2, seed=0, ranks=(0, 2))
    data.append(8)
    with pytest.warns(RuntimeWarning, match="list has 9 samples now, but had 8 when the loader was made"):
        assert flat(lists(loader)) == [0, 2, 4, 6]


def test_states_of_a_sharded_sampler_and_of_ranks_are_the_same():
    share = ShardedSampler(RandomSampler(20, seed=0), 2, 1)
    before, states = run([DataLoader(range(20), 2, sampler=share, seed=0)], 2)
    ours, same = run(loaders(2, shuffle=True)[1:], 2)
    assert (before, states) == (ours, same)
