"""`ranks` and `merge_states` of iterable datasets: which rank reads what, lengths, and what is refused."""

import json
import sys
import threading
from itertools import islice

import numpy as np
import pytest
from conftest import FORK, ONE_FORK, SERIAL
from mistakes import mistakes

from gluonloader import DataLoader, IterableDataset, Ranks, SimpleDataset, merge_states, random_split


class Files(IterableDataset):
    """Files with two samples each; a shard is every n-th file."""

    def __init__(self, files):
        self.files = files

    def __iter__(self):
        return iter(self.shard(1, 0))

    def shard(self, num_shards, index):
        return [f"{file}{number}" for file in self.files[index::num_shards] for number in range(2)]


NUMBERS = IterableDataset(range(10))  # it has a length
STREAM = IterableDataset(lambda: iter(range(10)))  # it has none


def rank(index, count, *options, dataset=STREAM, num_shards=6, gather=None, **arguments):
    """The loader of one rank; the options are those of `Ranks`."""
    ranks = Ranks(index, count, *options, gather=gather)
    shards = IterableDataset(dataset, num_shards=num_shards)
    return DataLoader(shards, 2, **{"ranks": ranks, "batchify_fn": list, "seed": 0, **arguments})


def epochs(dataset, count, *options, num_shards=3, gather=None):
    """The batches of each rank; the length of a loader is their number."""
    batches = []
    for index in range(count):
        loader = rank(index, count, *options, dataset=dataset, num_shards=num_shards, gather=gather)
        batches.append(list(loader))
        assert len(loader) == len(batches[-1])
    return batches


def test_by_default_there_is_a_shard_for_each_worker_of_each_rank():
    for way, shards in ((SERIAL, 3), (ONE_FORK, 3), (FORK, 6)):
        with way.loader(STREAM, 2, ranks=(0, 3)) as loader:
            assert loader.state_dict()["num_shards"] == shards


@pytest.mark.parametrize("dataset", [STREAM, range(10)], ids=["iterable", "indexed"])
def test_the_rank_is_found_in_the_environment(monkeypatch, dataset):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Ranks.of("env", "drop") == Ranks(1, 2, "drop")
    with SERIAL.loader(dataset, 2, ranks="env") as loader:
        assert [batch.tolist() for batch in loader] == [[1, 3], [5, 7], [9]]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int64])
def test_ranks_and_shards_may_be_ints_of_numpy(kind):
    data = IterableDataset(range(100), num_shards=6)
    loaders = [DataLoader(data, 4, seed=0, ranks=Ranks(kind(rank), kind(3))) for rank in range(3)]
    assert sorted(sample for loader in loaders for batch in loader for sample in batch.tolist()) == list(range(100))
    assert len(SimpleDataset(range(1000)).shard(kind(4), kind(1))) == 250
    assert list(map(len, random_split(range(200), [kind(100), kind(100)]))) == [100, 100]


def test_a_single_rank_is_a_loader_without_ranks():
    loader, other = rank(0, 1), rank(0, 1, ranks=None)
    assert loader.state_dict() == other.state_dict()
    other.load_state_dict(loader.state_dict())


def test_the_policies():
    assert epochs(NUMBERS, 2) == [[[0, 3], [2, 5], [6, 9], [8]], [[1, 4], [7]]]
    assert epochs(NUMBERS, 2, "drop") == [[[0, 3], [2, 5]], [[1, 4], [7]]]
    assert epochs(NUMBERS, 2, "repeat") == [
        [[0, 3], [2, 5], [6, 9], [8]],
        [[1, 4], [7], [1, 4], [1, 4]],
    ]
    with pytest.raises(TypeError):
        len(rank(0, 2))


def test_lengths_may_be_stated_or_exchanged():
    expected, asked = epochs(NUMBERS, 2, "drop"), []

    def gather(count):
        asked.append(count)
        return [4, 2]

    assert epochs(STREAM, 2, "drop", [4, 3, 3]) == expected
    assert epochs(NUMBERS, 2, "drop", gather=gather) == expected
    loader = rank(0, 2, "drop", dataset=NUMBERS, num_shards=3, gather=gather)
    assert [len(loader), len(list(loader)), len(list(loader))] == [2, 2, 2]
    assert asked == [4, 2, 4], "once for all epochs of a loader"


@pytest.mark.parametrize("policy", ["uneven", "drop", "repeat"])
@pytest.mark.parametrize("dataset", [STREAM, STREAM.filter(lambda number: True)])
def test_stated_lengths_are_those_of_a_single_rank_too(dataset, policy):
    assert len(epochs(dataset, 1, policy, [4, 3, 3])[0]) == 5
    loader = rank(0, 1, policy, [4, 3, 3], dataset=dataset, num_shards=3, last_batch="rollover", batchify_fn=list)
    assert [len(loader), len(list(loader)), len(loader), len(list(loader))] == [5, 5, 5, 5]


def test_each_rank_needs_to_know_only_its_own_lengths_to_exchange_counts():
    class OwnFiles(IterableDataset):
        def __init__(self, rank):
            self.rank = rank

        def shard(self, num_shards, index):
            assert index % 2 == self.rank
            return ["a", "b", "c"][: index + 1]

    for index in range(2):
        own = rank(index, 2, "drop", dataset=OwnFiles(index), num_shards=2, gather=lambda count: [1, 1])
        assert list(own) == [["a", "b"][: index + 1]]


def test_the_first_samples_of_a_dataset_have_a_known_length():
    assert epochs(NUMBERS.take(4), 2, "drop", num_shards=2) == [[[0, 2]], [[1, 3]]]


def test_the_shards_of_joined_datasets_have_a_length():
    joined = (IterableDataset(Files("abc")) + Files("de")).transform(str.upper)
    first, second = [["A0", "A1"], ["C0", "C1"], ["D0", "D1"]], [["B0", "B1"], ["E0", "E1"]]
    assert epochs(joined, 2, num_shards=2) == [first, second]
    assert epochs(joined, 2, "drop", num_shards=2) == [first[:2], second]
    assert epochs(joined, 2, "repeat", num_shards=2) == [first, [*second, second[0]]]


@pytest.mark.parametrize(
    "dataset",
    [
        NUMBERS + STREAM,
        NUMBERS + NUMBERS.filter(bool),
        IterableDataset(Files("abc")).filter(bool) + Files("de"),
        (NUMBERS + STREAM).take(12),
        NUMBERS.filter(bool).shard(2, 0),
    ],
    ids=repr,
)
def test_the_length_of_a_dataset_is_not_known_if_that_of_a_part_is_not(dataset):
    with pytest.raises(TypeError):
        len(rank(0, 2, dataset=dataset, num_shards=2))
    for policy in ("drop", "repeat"):
        with pytest.raises(ValueError, match="it needs the length of each shard"):
            rank(0, 2, policy, dataset=dataset, num_shards=2)


def saved(count, batches, **arguments):
    """The states of all ranks after so many batches, and the samples that were delivered."""
    states, seen = [], []
    for index in range(count):
        loader = rank(index, count, **arguments)
        seen += sum(islice(loader, batches), [])
        states.append(loader.state_dict())
    return states, seen


@pytest.mark.filterwarnings("ignore:resuming")
def test_a_merged_state_fits_any_number_of_ranks():
    states, seen = saved(2, 2)
    for form in (states, [json.dumps(state) for state in reversed(states)]):
        merged = json.loads(json.dumps(merge_states(form)))
        for loaders in [[rank(0, 1, ranks=None)], *([rank(i, n) for i in range(n)] for n in (1, 2, 3, 6))]:
            for loader in loaders:
                loader.load_state_dict(merged)
            rest = [sample for loader in loaders for batch in loader for sample in batch]
            assert sorted(seen + rest) == list(range(10))


class Counting:
    """An iterator over numbers, with a state."""

    def __init__(self, start, stop):
        self.next, self.stop = start, stop

    def __iter__(self):
        return self

    def __next__(self):
        if self.next >= self.stop:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Parts:
    """The numbers below 24 in shards that resume without reading samples again."""

    def __iter__(self):
        return Counting(0, 24)

    def shard(self, num_shards, index):
        size = 24 // num_shards
        return Counting(size * index, size * (index + 1))


def test_ranks_that_have_loaded_a_merged_state_can_be_merged_again():
    seen, merged = [], None
    for count in (3, 2, 6):
        states = []
        for index in range(count):
            loader = rank(index, count, dataset=Parts())
            if merged is not None:
                loader.load_state_dict(merged)
            seen += next(iter(loader))
            states.append(json.loads(json.dumps(loader.state_dict())))
            assert {hint["shard"] % count for hint in states[-1]["hints"]} == {index}
        merged = merge_states(states)
    loader = rank(0, 1, dataset=Parts(), ranks=None)
    loader.load_state_dict(merged)
    assert sorted(seen + sum(loader, [])) == list(range(24))


@pytest.mark.filterwarnings("ignore:resuming IterableDataset reads the samples:RuntimeWarning")
def test_a_merged_state_that_all_ranks_have_loaded_is_merged():
    merged = merge_states(saved(3, 1)[0])
    loaders = [rank(index, 2) for index in range(2)]
    for loader in loaders:
        loader.load_state_dict(merged)
    assert merge_states(loader.state_dict() for loader in loaders) == merged


@pytest.mark.filterwarnings("ignore:resuming IterableDataset reads the samples:RuntimeWarning")
@pytest.mark.parametrize("arguments", [{}, {"ranks": (0, 1)}], ids=str)
@pytest.mark.parametrize("dataset", [STREAM, list(range(24))], ids=["iterable", "indexed"])
def test_the_state_of_a_single_process_is_merged_already(dataset, arguments):
    def make():
        return DataLoader(dataset, 2, seed=1, **arguments)

    whole = [batch.tolist() for batch in make()]
    loader = make()
    next(iter(loader))
    merged = merge_states([json.dumps(loader.state_dict())])
    assert merge_states([merged]) == merged
    for after in (make(), DataLoader(dataset, 2, seed=1)):
        after.load_state_dict(merged)
        assert [batch.tolist() for batch in after] == whole[1:]


def test_the_state_of_a_rank_fits_only_that_rank():
    states, _ = saved(2, 1)
    for loader in (rank(1, 2), rank(0, 3), rank(0, 1, ranks=None)):
        with pytest.raises(ValueError, match=r"rank 0 of 2 has saved it.*merge_states"):
            loader.load_state_dict(states[0])


def states():
    return saved(2, 1)[0]


@mistakes(
    globals(),
    r"""
DataLoader(STREAM, 2, seed=0, ranks=(2, 2)) -> index=2: must be an int from 0 to count - 1 (1)
DataLoader(STREAM, 2, seed=0, ranks=(0, 0)) -> count=0: must be an int >= 1
DataLoader(STREAM, 2, seed=0, ranks=(True, 2)) -> index=True: must be an int >= 0
DataLoader(STREAM, 2, seed=0, ranks="mxnet") -> ranks='mxnet': must be 'torch', 'mpi' or 'env'
DataLoader(STREAM, 2, seed=0, ranks=3) -> ranks=3: must be ... or a gluonloader.Ranks
DataLoader(STREAM, 2, seed=None, ranks=(0, 2)) -> ...pass the same seed on all ranks, e.g. seed=0
DataLoader(IterableDataset(STREAM, num_shards=2), 2, seed=0, ranks=(0, 3))
    -> num_shards=2: each of the 3 ranks needs a shard; pass at least 3
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "pad"))) -> policy='pad': must be 'uneven', 'drop' or 'repeat'
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "drop", gather=3))) -> gather=3: must be a function...
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "drop")))
    -> ...needs the length of each shard, and ... does not say it; pass ...shard_lengths...
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "drop", shard_lengths=[5])))
    -> ...there are num_shards=2 shards; pass one length for each
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "drop", shard_lengths=[5, -1]))) -> shard_lengths=-1...
DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 1, "drop", [5, 5]))
    -> ...there are num_shards=1 shards; pass one length for each
list(DataLoader(STREAM, 2, seed=0, last_batch="rollover", ranks=Ranks(0, 2, "repeat", shard_lengths=[5, 5])))
    -> ...pass 'keep' or 'discard'
list(DataLoader(STREAM, 2, seed=0, ranks=Ranks(0, 2, "drop", shard_lengths=[5, 5], gather=lambda count: [count])))
    -> ...return the argument of each...
list(DataLoader(IterableDataset(STREAM, 3), 2, seed=0, ranks=Ranks(0, 2, "repeat", [4, 3, 4])))
    -> ...shard 2 has exactly 3 samples, but its stated length is 4...
list(DataLoader(IterableDataset(STREAM, 3), 2, seed=0, ranks=Ranks(0, 2, "repeat", [3, 3, 3])))
    -> ...shard 0 has at least 4 samples, but its stated length is 3...
list(DataLoader(IterableDataset(STREAM, 3), 2, seed=0, ranks=Ranks(0, 2, "repeat", [6, 3, 3])))
    -> ...shard 0 has at most 4 samples, but its stated length is 6...
DataLoader(NUMBERS.filter(bool), 2, seed=0, ranks=Ranks(0, 2, "drop")) -> ...needs the length of each shard...
NUMBERS.shard(0, 0) -> num_shards=0: must be an int >= 1
NUMBERS.shard(2, 2) -> index=2: must be an int from 0 to num_shards - 1 (1)
NUMBERS.shard(2, -1) -> index=-1: must be an int >= 0
merge_states([]) -> states: there is none; pass the states of all ranks
merge_states(states()[:1]) -> states: those of ranks [1] are missing; pass the states of all ranks
merge_states([states()[0], states()[0]]) -> states: rank 0 comes twice; pass one state for each rank
merge_states([states()[0], saved(2, 1, num_shards=4)[0][1]]) -> ...num_shards...
merge_states([states()[0], saved(2, 1, seed=3)[0][1]]) -> ...seed...
merge_states([states()[0], saved(3, 1)[0][1]]) -> ...ranks...
merge_states([merge_states(states()), states()[0]]) -> ...is merged already...
merge_states([states()[0], {**states()[1], "batch": 0}]) -> ...check...
merge_states([states()[0], "{"]) -> ...JSON...
merge_states([states()[0], {**states()[1], "ended": 3}]) -> ...check...
""",
)
def test_mistakes(mistake):
    mistake.check()


def test_states_of_different_epochs():
    states, _ = saved(2, 1)
    loader = rank(1, 2)
    list(loader)
    states[1] = loader.state_dict()  # this rank has finished the epoch
    merge_states(states)
    next(iter(loader))
    states[1] = loader.state_dict()
    with pytest.raises(ValueError, match="save the states of all ranks at the same time"):
        merge_states(states)


def test_batches_and_random_numbers_do_not_depend_on_the_number_of_ranks():
    def batches(count):
        seen = {}
        for index in range(count):
            iterator = iter(rank(index, count, dataset=IterableDataset(STREAM, shuffle_buffer=4), shuffle=True))
            for batch in iterator:
                seen[iterator.last.number] = batch, iterator.last.shard
        return {number: made for number, made in seen.items() if made[1] is not None}

    assert batches(1) == batches(2) == batches(3)


@pytest.mark.filterwarnings("ignore:resuming range reads")
@pytest.mark.parametrize("policy", ["uneven", "drop", "repeat"])
def test_any_batch_of_a_rank_is_made_again(policy):
    for index in range(2):
        loader = rank(index, 2, policy, dataset=NUMBERS, num_shards=3)
        iterator = iter(loader)
        batches = [(iterator.last.number, batch) for batch in iterator]
        for place, (number, batch) in enumerate(batches):
            assert loader.replay(0, number, read=True) == batch
            loader.seek(0, number)
            assert list(loader) == [batch for _, batch in batches[place:]]


def test_with_many_ranks_a_rank_looks_only_at_its_own_shards():
    count, looks = 100_000, []

    class Few(IterableDataset):
        def __init__(self):
            pass

        def shard(self, num_shards, index):
            looks.append(index)
            return range(6)

    loader = rank(7, count, dataset=Few(), num_shards=count)
    batches = iter(loader)
    assert next(batches) == [0, 1]
    assert len(json.dumps(loader.state_dict())) < 1000  # bytes
    assert list(batches) == [[2, 3], [4, 5]]
    assert set(looks) == {7}


def calls_of(function):
    """The number of calls of Python functions; a resumed generator counts as a call."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.filterwarnings("ignore:resuming")
def test_a_process_reads_the_shards_of_many_ranks_in_linear_time():
    class Short(IterableDataset):
        def __init__(self):
            pass

        def shard(self, num_shards, index):
            return range(index * 5, index * 5 + 5)

    def calls(count):
        states, rest = [], []
        for index in range(count):
            loader = rank(index, count, dataset=Short(), num_shards=count)
            list(islice(loader, 3 if index % 2 else 1))  # the third batch is the leftover
            states.append(loader.state_dict())
        loader = rank(0, 1, dataset=Short(), num_shards=count, ranks=None)
        loader.load_state_dict(merge_states(states))
        made = calls_of(lambda: rest.extend(sample for batch in loader for sample in batch))
        assert sorted(rest) == [5 * index + i for index in range(0, count, 2) for i in range(2, 5)]
        return made

    calls(2)  # the first loader imports modules
    assert calls(200) < 5 * calls(50)


def test_views_of_shards():
    dataset = IterableDataset(range(10)).transform(lambda x: 2 * x)
    parts = [dataset.shard(3, index) for index in range(3)]
    assert [list(part) for part in parts] == [[0, 6, 12, 18], [2, 8, 14], [4, 10, 16]]
    assert [len(part) for part in parts] == [4, 3, 3]
    assert repr(parts[1]) == f"{dataset!r}.shard(3, 1)"
    assert list(parts[0].filter(lambda x: x > 0).take(2)) == [6, 12]
    assert sorted(sum((list(parts[0].shard(2, index)) for index in range(2)), [])) == [0, 6, 12, 18]
    assert [list(dataset.take(4).shard(2, index)) for index in range(2)] == [[0, 4], [2, 6]]


def test_views_of_a_dataset_that_makes_its_shards():
    files = IterableDataset(Files("abc")).transform(str.upper)
    assert [list(files.shard(2, index)) for index in range(2)] == [["A0", "A1", "C0", "C1"], ["B0", "B1"]]
    assert [list(files.take(3).shard(2, index)) for index in range(2)] == [["A0", "B0"], ["A1"]]


def test_views_are_read_by_a_loader(way):
    view = NUMBERS.shard(2, 1)
    with way.loader(IterableDataset(view, num_shards=2), 2) as loader:
        assert sorted(sum((batch.tolist() for batch in loader), [])) == [1, 3, 5, 7, 9]


def test_batches_that_one_rank_has_delivered_ahead_do_not_come_again_after_a_merge():
    go = threading.Event()

    class Numbers:
        """Shard 0 waits, so the other shard of its rank comes first."""

        def __iter__(self):
            return self.shard(1, 0)

        def shard(self, num_shards, index):
            for number in range(index, 32, num_shards):
                while number == 0 and not go.is_set():
                    go.wait(0.01)
                yield number

    states, seen = [], []
    shards = {"dataset": Numbers(), "num_shards": 4}
    for index in range(2):
        with rank(index, 2, **shards, executor="thread", num_workers=2, in_order=False) as loader:
            iterator = iter(loader)
            seen += next(iterator) + next(iterator)
            states.append(loader.state_dict())
            go.set()
    merged = merge_states(states)
    assert merged["ahead"]
    rest = rank(0, 1, **shards)
    rest.load_state_dict(merged)
    assert sorted(seen + sum(rest, [])) == list(range(32))
