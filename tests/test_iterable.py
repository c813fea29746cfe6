"""Iterable datasets through the loader: every sample once, at most one short batch, whoever reads and whoever dies."""

import json
import os
import random
import signal
import warnings
from collections import Counter

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, Way, load_mxnet, load_or_skip

from gluonloader import DataLoader, Dataset, IterableDataset, get_rng, get_worker_info, merge_states
from gluonloader.errors import WorkerDied
from gluonloader.options import Processes

WORKERS = [SERIAL, Way("thread-3", {"num_workers": 3, "thread_pool": True}), Way("fork-3", {"num_workers": 3})]


class Parts:
    """An iterable dataset with shards of its own, of given lengths; some samples kill their worker the first time."""

    def __init__(self, lengths, fatal=(), folder=None, shard=None):
        self.lengths, self.fatal, self.folder, self.index = lengths, fatal, folder, shard

    def shard(self, num_shards, index):
        assert num_shards == len(self.lengths)
        return Parts(self.lengths, self.fatal, self.folder, index)

    def __iter__(self):
        for shard in range(len(self.lengths)) if self.index is None else [self.index]:
            for number in range(self.lengths[shard]):
                self.perhaps_die((shard, number))
                yield np.array([shard, number])

    def perhaps_die(self, sample):
        if sample in self.fatal:
            try:
                os.close(os.open(f"{self.folder}/{sample}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def check(batches, lengths, size, last_batch="keep"):
    """Nothing lost, nothing doubled, and all batches whole but one (the last, where they come in order)."""
    samples = [tuple(sample) for batch in batches for sample in batch.tolist()]
    total = sum(lengths)
    assert sum(len(batch) < size for batch in batches) <= 1
    expected = Counter((shard, number) for shard, length in enumerate(lengths) for number in range(length))
    if last_batch == "keep":
        assert Counter(samples) == expected
        assert len(batches) == -(-total // size)
    else:
        assert len(samples) == len(set(samples)) == total - total % size
        assert set(samples) <= set(expected)


@pytest.mark.kill
@pytest.mark.numpy_only
@pytest.mark.parametrize("block", range(10))
def test_random_lengths_workers_and_deaths(block, tmp_path):
    rng = random.Random(block)
    for case in range(20):
        lengths = [rng.choice([0, 1, rng.randrange(20)]) for _ in range(rng.randrange(1, 5))]
        size, workers = rng.randrange(1, 6), rng.randrange(1, 5)
        places = [(shard, number) for shard, length in enumerate(lengths) for number in range(length)]
        fatal = rng.sample(places, min(len(places), rng.choice([0, 0, 1, 2])))
        folder = tmp_path / str(case)
        folder.mkdir()
        last_batch, buffer = rng.choice(["keep", "keep", "discard"]), rng.choice([None, None, 4])
        dataset = IterableDataset(Parts(lengths, fatal, folder), len(lengths), buffer)
        workers_that_die = {"num_workers": workers, "executor": Processes(max_retries=3), "timeout": 10}
        with DataLoader(
            dataset, size, buffer is not None, last_batch=last_batch, in_order=rng.random() < 0.7, seed=case,
            **workers_that_die,
        ) as loader:  # fmt: skip
            for _ in range(2):
                check(list(loader), lengths, size, last_batch)


@pytest.mark.parametrize("shuffle", [False, True], ids=["plain", "shuffled"])
def test_the_order_depends_on_the_shards_and_not_on_the_workers(shuffle):
    def noisy():
        for number in range(37):
            yield number, get_rng().random()

    runs = []
    for way in [*WORKERS, Way("fork-1", {"num_workers": 1}), Way("fork-4", {"num_workers": 4, "prefetch": 9})]:
        with way.loader(IterableDataset(noisy, num_shards=3, shuffle_buffer=6), 4, shuffle) as loader:
            runs.append([[[array.tolist() for array in batch] for batch in loader] for _ in range(2)])
    assert all(run == runs[0] for run in runs)
    assert sorted(sum((batch[0] for batch in runs[0][0]), [])) == list(range(37))
    assert runs[0][0] != runs[0][1]  # other random numbers, and another order


def test_without_shards_of_its_own_a_dataset_is_cut_by_position(any_way):
    with any_way.loader(IterableDataset(lambda: iter(range(10)), num_shards=2), 2) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 9]]


def test_a_source_that_draws_its_own_order_is_cut_right():
    """Each shard reads all of it and keeps its part, so all have to see one order."""

    def files():
        names = list(range(37))
        get_rng().shuffle(names)
        yield from names

    runs = []
    for way in [*WORKERS, Way("fork-1", {"num_workers": 1})]:
        with way.loader(IterableDataset(files, num_shards=3), 4) as loader:
            runs.append([[batch.tolist() for batch in loader] for _ in range(2)])
    assert all(run == runs[0] for run in runs)
    for epoch in runs[0]:
        assert sorted(sum(epoch, [])) == list(range(37))
    assert runs[0][0] != runs[0][1]


class Generated(IterableDataset):
    """Its shards are generators."""

    def __init__(self):
        pass

    def shard(self, num_shards, index):
        yield from range(index, 11, num_shards)


def test_a_shard_that_is_a_generator_is_made_again_in_each_epoch(any_way):
    expected = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9]]
    with any_way.loader(IterableDataset(Generated(), num_shards=2), 2) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == expected
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(3)] == expected[:3]
        with pytest.warns(RuntimeWarning, match="reads the samples of about 3 batches again"):
            loader.load_state_dict(loader.state_dict())
        assert [batch.tolist() for batch in loader] == expected[3:]


def test_joined_datasets_are_loaded_and_resumed(any_way):
    with any_way.loader(IterableDataset(Generated() + Generated(), num_shards=2), 4) as loader:
        expected = [batch.tolist() for batch in loader]
        assert sorted(sum(expected, [])) == sorted([*range(11)] * 2)
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(3)] == expected[:3]
        state = loader.state_dict()
        with pytest.warns(RuntimeWarning, match="reads the samples of about 3 batches again"):
            loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == expected[3:]


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_last_batch_means_what_it_means_elsewhere(way):
    lengths = [5, 3, 3]
    with way.loader(IterableDataset(Parts(lengths), num_shards=3), 4) as loader:
        assert [len(batch) for batch in loader] == [4, 4, 3]
    with way.loader(IterableDataset(Parts(lengths), num_shards=3), 4, last_batch="discard") as loader:
        assert [len(batch) for batch in loader] == [4, 4]
    with way.loader(IterableDataset(Parts(lengths), num_shards=3), 4, last_batch="rollover") as loader:
        epochs = [list(loader) for _ in range(4)]
    assert [[len(batch) for batch in batches] for batches in epochs] == [[4, 4], [4, 4, 4], [4, 4, 4], [4, 4, 4]]
    counts = Counter(tuple(sample) for batches in epochs for batch in batches for sample in batch.tolist())
    assert set(counts.values()) == {4}  # eleven samples, four epochs, eleven batches of four


def test_a_broken_off_epoch_leaves_the_next_one_whole(any_way):
    with any_way.loader(IterableDataset(lambda: iter(range(50))), 4) as loader:
        for _ in range(3):
            next(iter(loader))
        assert sorted(sum((batch.tolist() for batch in loader), [])) == list(range(50))


def test_two_iterators_at_once_do_not_share_their_streams(any_way):
    with any_way.loader(IterableDataset(lambda: iter(range(21)), num_shards=2), 4) as loader:
        expected = [batch.tolist() for batch in loader]
        assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [(b, b) for b in expected]


def test_an_error_of_the_dataset_is_raised_for_its_batch_and_the_rest_comes(any_way):
    class Broken:
        def __iter__(self):
            return Again()

    class Again:
        def __init__(self):
            self.numbers = iter(range(12))

        def __iter__(self):
            return self

        def __next__(self):
            number = next(self.numbers)
            if number == 5:
                raise KeyError("five")
            return number

    with any_way.loader(IterableDataset(Broken(), num_shards=1), 2) as loader:
        iterator, seen = iter(loader), []
        with pytest.raises(KeyError, match="five") as caught:
            seen.extend(batch.tolist() for batch in iterator)
        assert any("sample 5 of shard 0" in note for note in caught.value.__notes__)
        seen += [batch.tolist() for batch in iterator]
    assert seen == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


def test_a_sample_that_always_kills_ends_its_shard_and_not_the_others(tmp_path):
    class Deadly(Parts):
        def shard(self, num_shards, index):
            return Deadly(self.lengths, self.fatal, self.folder, index)

        def perhaps_die(self, sample):
            if sample == (0, 5):
                os._exit(3)

    with FORK.loader(IterableDataset(Deadly([9, 9]), num_shards=2), 2, **FORK.retrying(1)) as loader:
        iterator, seen, errors = iter(loader), [], []
        while True:
            try:
                seen += map(tuple, next(iterator).tolist())
            except WorkerDied as error:
                errors.append(str(error))
            except StopIteration:
                break
    assert len(errors) == 1
    assert "sample 5 of shard 0" in errors[0]
    assert "exit code 3" in errors[0]
    assert sorted(seen) == [(0, n) for n in range(4)] + [(1, n) for n in range(9)]


def test_length_where_the_dataset_has_one(any_way):
    class Sized(Parts):
        def __len__(self):
            return sum(self.lengths)

    with any_way.loader(IterableDataset(Sized([5, 6]), num_shards=2), 4) as loader:
        assert len(loader) == len(list(loader)) == 3
    with any_way.loader(IterableDataset(Parts([5]), num_shards=1), 4) as loader, pytest.raises(TypeError):
        len(loader)


def test_a_dataset_that_gives_whole_batches(any_way):
    with any_way.loader(IterableDataset(lambda: iter(["a", "b", "c"]), num_shards=1)) as loader:
        assert list(loader) == ["a", "b", "c"]


def test_how_a_dataset_is_read_is_kept_by_its_steps_and_by_an_object_that_wraps_it():
    stream = IterableDataset(range(12), num_shards=3, shuffle_buffer=4)
    changed = stream.transform(abs).filter(lambda number: number >= 0).take(12)
    joined = stream + [1, 2] + IterableDataset(range(3), num_shards=3)
    for dataset in (stream, changed, joined, IterableDataset(stream), IterableDataset(changed, shuffle_buffer=4)):
        with DataLoader(dataset, 4, True, seed=0) as loader:
            state = loader.state_dict()
            assert (state["num_shards"], state["shuffle_buffer"]) == (3, 4)
    with DataLoader(IterableDataset(stream, num_shards=2), 4) as loader:
        assert loader.state_dict()["num_shards"] == 2
    text = "num_shards=2 and 3; wrap the chain: IterableDataset.first . second, num_shards=3."
    with pytest.raises(ValueError, match=text):
        DataLoader(stream + IterableDataset(range(3), num_shards=2), 4)


def test_what_can_be_indexed_is_not_taken_for_an_iterable():
    class Both(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index * 10

    assert [batch.tolist() for batch in DataLoader(Both(), 2, sampler=[2, 0])] == [[20, 0]]


def test_workers_know_who_they_are_while_they_read():
    class Who(IterableDataset):
        def __init__(self):
            pass

        def shard(self, num_shards, index):
            for _ in range(3):
                yield get_worker_info().id

    with FORK.loader(IterableDataset(Who(), num_shards=2), 3) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_shards_that_are_cut_out_of_different_orders_are_an_error(way):
    def random_order():
        yield from (os.urandom(8) for _ in range(8))  # not from generators that the loader seeds

    text = r"shard \d .* read a different first sample .* method shard\(num_shards, index\)"
    with way.loader(IterableDataset(random_order, num_shards=2), 2) as loader:
        for _ in range(2):  # also after the first error
            with pytest.raises(RuntimeError, match=text):
                list(loader)


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_samples_that_are_alike_raise_no_alarm(way):
    torch = load_or_skip("torch")

    def samples():
        for number in range(8):
            yield {"x": torch.full((4,), number), "of": {"a", "b", "c"}, "at": object}, np.arange(number)

    with way.loader(IterableDataset(samples, num_shards=2), 2, batchify_fn=list) as loader:
        assert sum(map(len, loader)) == 8


def test_an_iterator_that_is_given_twice_is_an_error(any_way):
    class Once:
        def __init__(self):
            self.numbers = iter(range(4))

        def __iter__(self):
            return self.numbers

    with any_way.loader(IterableDataset(Once(), num_shards=1), 2) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
        with pytest.raises(RuntimeError, match=r"Once.__iter__ returned the same iterator again"):
            list(loader)


def test_resuming_by_reading_says_what_it_costs():
    def make():
        return DataLoader(IterableDataset(lambda: iter(range(100)), num_shards=2), 5, seed=1)

    loader = make()
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    state = loader.state_dict()
    other = make()
    with pytest.warns(RuntimeWarning, match=r"resuming .* reads the samples of about 7 batches again") as caught:
        other.load_state_dict(state)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [batch.tolist() for batch in other] == [batch.tolist() for batch in iterator]


def test_resuming_does_not_warn_if_no_sample_is_read_again():
    def make(lengths, **arguments):
        return DataLoader(IterableDataset(Parts(lengths), num_shards=len(lengths)), 4, seed=1, **arguments)

    loader = make([2, 2, 2])
    next(iterator := iter(loader))
    rest = make([2, 2, 2])
    rest.load_state_dict(loader.state_dict())  # all shards have ended; their samples make batches together
    assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in iterator]
    first, second = (make([8, 8], ranks=(rank, 2)) for rank in range(2))
    next(iter(first))
    state = merge_states([first.state_dict(), second.state_dict()])
    second.load_state_dict(state)  # this rank has read nothing
    assert [batch[:, 0].tolist() for batch in second] == [[1] * 4] * 2
    with pytest.warns(RuntimeWarning, match="reads the samples of about 1 batch again"):
        first.load_state_dict(state)


class Counting:
    """A dataset with a state of its own, in torchdata's manner; it notes how far it was read."""

    read = 0

    def __init__(self, length):
        self.length, self.position = length, 0

    def __iter__(self):
        while self.position < self.length:
            self.position += 1
            Counting.read += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


@pytest.mark.parametrize("shuffle", [False, True], ids=["plain", "shuffled"])
def test_a_datasets_own_state_saves_reading(shuffle):
    def make():
        return DataLoader(IterableDataset(Counting(1000), num_shards=1, shuffle_buffer=20), 5, shuffle, seed=1)

    loader = make()
    iterator = iter(loader)
    for _ in range(150):
        next(iterator)
    state = loader.state_dict()
    expected = [batch.tolist() for batch in iterator]
    Counting.read = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = make()
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == expected
    assert Counting.read <= 250 + 20


@pytest.mark.parametrize("way", [FORK, THREAD], ids=str)
def test_nothing_is_left_behind(way, no_leaks):
    with way.loader(IterableDataset(lambda: iter(range(1000))), 4) as loader:
        for _ in range(5):
            iterator = iter(loader)
            next(iterator)
        del iterator


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_loader_is_an_iterable_dataset_of_its_batches(num_shards, way):
    def make():
        return way.loader(IterableDataset(DataLoader(range(11), 3, shuffle=True, seed=1), num_shards=num_shards))

    with make() as loader:
        expected = [[batch.tolist() for batch in loader] for _ in range(2)]
        assert [sorted(sum(epoch, [])) for epoch in expected] == [[*range(11)]] * 2
        loader.set_epoch(0)
        states = [loader.state_dict() for _ in loader]
    for number, state in enumerate(states, 1):
        with make() as loader:
            loader.load_state_dict(state)
            assert [[batch.tolist() for batch in loader] for _ in range(2)] == [expected[0][number:], expected[1]]


# -- datasets of others --------------------------------------------------------------------------------------------


def test_iterable_datasets_of_torch(any_way):
    data = pytest.importorskip("torch.utils.data")

    class Squares(data.IterableDataset):
        def __iter__(self):
            return (number**2 for number in range(5))

    with any_way.loader(IterableDataset(Squares(), num_shards=1), 2) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [4, 9], [16]]


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_streams_of_hugging_face_are_sharded_and_resumed(way):
    datasets = load_or_skip("datasets")
    table = datasets.Dataset.from_dict({"x": list(range(40)), "name": [f"n{i}" for i in range(40)]})

    def make():
        return way.loader(IterableDataset(table.to_iterable_dataset(num_shards=4), num_shards=2), 3)

    with make() as loader:
        iterator = iter(loader)
        seen = [next(iterator) for _ in range(5)]
        state = loader.state_dict()
        left = list(iterator)
    assert sorted(x for batch in seen + left for x in batch["x"].tolist()) == list(range(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with make() as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            rest = list(loader)
    assert [(batch["x"].tolist(), batch["name"]) for batch in rest] == [
        (batch["x"].tolist(), batch["name"]) for batch in left
    ]


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_iterators_of_mxnet_give_their_own_batches_epoch_after_epoch(way):
    mx = load_mxnet()
    if mx is None:
        pytest.skip("needs MXNet")
    source = mx.io.NDArrayIter(mx.nd.arange(12).reshape((6, 2)), mx.nd.arange(6), batch_size=2)
    with way.loader(IterableDataset(source, num_shards=1)) as loader:
        for _ in range(2):
            assert [batch.label[0].asnumpy().tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]


def hugging_face(step):
    """Two datasets of four shards each, with 50 and 30 samples in each shard, combined in this way."""
    datasets = load_or_skip("datasets")

    def rows(starts, count):
        for start in starts:
            yield from ({"x": start + number} for number in range(count))

    first, second = (
        datasets.IterableDataset.from_generator(rows, gen_kwargs={"starts": starts, "count": count})
        for starts, count in (([0, 1000, 2000, 3000], 50), ([4000, 5000, 6000, 7000], 30))
    )
    return {
        "random": lambda: datasets.interleave_datasets([first, second], probabilities=[0.6, 0.4], seed=1),
        "all": lambda: datasets.interleave_datasets([first, second], stopping_strategy="all_exhausted").map(same),
        "take": lambda: first.take(60),
        "skip": lambda: IterableDataset(first.skip(60)).transform(same),
        "whole": lambda: datasets.interleave_datasets(
            [first, second], stopping_strategy="all_exhausted_without_replacement"
        ),
        "none": lambda: datasets.concatenate_datasets([first, second]),
        "ours": lambda: IterableDataset(first.skip(60)).take(50),
    }[step]()


def same(row):
    return row


def samples_of(dataset, **arguments):
    with DataLoader(dataset, 10, seed=0, **arguments) as loader:
        return sorted(number for batch in loader for number in batch["x"].tolist())


@pytest.mark.parametrize("step", ["random", "all", "skip", "take"])
def test_steps_of_hugging_face_that_choose_other_samples_in_shards_are_reported(step):
    dataset = hugging_face(step)
    name = "interleave_datasets" if step in ("random", "all") else step
    text = f"^{name} of Hugging Face applies to each shard separately, .* default .here 2.; pass num_shards=1 for .*"
    with pytest.warns(RuntimeWarning, match=f"{text}, or num_shards=2 to get these samples with any") as found:
        two_workers = samples_of(dataset, num_workers=2, executor="thread")
    assert (len(found), found[0].filename) == (1, __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = samples_of(dataset)
        assert alone != two_workers
        for workers in ({}, {"num_workers": 2, "executor": "thread"}):
            assert samples_of(IterableDataset(dataset, num_shards=1), **workers) == alone  # the first cure
            assert samples_of(IterableDataset(dataset, num_shards=2), **workers) == two_workers  # the second cure


@pytest.mark.parametrize("step", ["whole", "none", "ours"])
def test_other_steps_of_hugging_face_are_not_reported(step):
    dataset = hugging_face(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert samples_of(dataset, num_workers=2, executor="thread") == samples_of(dataset)


def test_the_report_names_all_steps_and_counts_the_workers_of_all_ranks():
    dataset = IterableDataset(hugging_face("random")) + hugging_face("take")
    text = (
        "^interleave_datasets and take of Hugging Face apply .* worker of each rank .* .here 4.; pass num_shards=4 to"
    )
    with pytest.warns(RuntimeWarning, match=text):
        DataLoader(dataset, 10, seed=0, num_workers=2, executor="thread", ranks=(0, 2)).close()


class Miscounted:
    """Yields `count` samples, whatever its length says."""

    def __init__(self, length, count):
        self.length, self.count = length, count

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(range(self.count))


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
@pytest.mark.parametrize(("length", "count"), [(10, 11), (10, 12), (0, 1), (9, 90)])
@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_dataset_that_yields_more_than_its_length_is_reported_once(way, length, count, last_batch):
    with way.loader(Miscounted(length, count), 4, last_batch=last_batch) as loader:
        with pytest.warns(RuntimeWarning) as met:
            list(loader), list(loader)
    (warning,) = met
    assert f"Miscounted yielded {count} samples, but its length is {length}" in str(warning.message)


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
@pytest.mark.parametrize(("length", "count"), [(11, 11), (12, 12), (12, 3), (0, 0)])
@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_dataset_with_the_right_length_is_not_reported(way, length, count, last_batch):
    with way.loader(Miscounted(length, count), 4, last_batch=last_batch) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            list(loader)


def test_the_length_is_not_compared_if_a_batch_was_lost():
    dataset = IterableDataset(range(9)).transform(lambda x: 1 // (x - 4)).take(8)
    with SERIAL.loader(dataset, 2) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        iterator = iter(loader)
        assert len([next(iterator), next(iterator)]) == 2
        with pytest.raises(ZeroDivisionError):
            next(iterator)
        assert len(list(iterator)) == 2


def test_the_length_is_compared_after_a_resume_too():
    def make():
        return SERIAL.loader(IterableDataset(Miscounted(10, 11), num_shards=2), 4)

    with make() as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
    with make() as loader:
        with pytest.warns(RuntimeWarning, match="resuming"):
            loader.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="Miscounted yielded 11 samples, but its length is 10"):
            list(loader)


ROLLOVER_WAYS = [SERIAL, THREAD, FORK]


class Five:
    def __iter__(self):
        return iter(range(5))


def rolling(way):
    return way.loader(IterableDataset(Five()), 2, last_batch="rollover")


@pytest.mark.parametrize("way", ROLLOVER_WAYS, ids=str)
def test_an_epoch_that_is_repeated_keeps_what_was_carried_over_to_it(way):
    seen = Counter()
    with rolling(way) as loader:
        for _ in range(4):
            loader.set_epoch(0)
            for batch in loader:
                seen.update(batch.tolist())
    assert seen.total() == 20
    assert set(seen.values()) == {4}


@pytest.mark.filterwarnings("ignore:resuming Five reads the samples")
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_what_was_carried_over_is_in_a_state_of_any_epoch(epoch):
    with rolling(SERIAL) as loader, rolling(SERIAL) as other:
        loader.set_epoch(3)
        list(loader)
        loader.set_epoch(epoch)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        for _ in range(3):
            assert [batch.tolist() for batch in other] == [batch.tolist() for batch in loader]


@pytest.mark.filterwarnings("ignore:resuming Five reads the samples")
@pytest.mark.parametrize("way", ROLLOVER_WAYS, ids=str)
def test_what_was_carried_over_to_an_epoch_that_is_left_after_a_resume_comes_later(way):
    with rolling(way) as loader, rolling(way) as other:
        list(loader)
        next(iter(loader))
        other.load_state_dict(loader.state_dict())
        other.set_epoch(2)
        for _ in range(3):
            for _ in other:
                break
        assert sum(len(batch) for batch in other) == 6
