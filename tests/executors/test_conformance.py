"""One body of tests over every executor and start method: order, window, structure, errors, independence."""

import os
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from conftest import OVER_RAY, eventually
from samples import plain
from started import Pair, TwoArguments

import gluonloader as gl
from gluonloader.batchify import AsList

pytestmark = pytest.mark.usefixtures("no_leaks")


@dataclass(frozen=True)
class Record:
    x: np.ndarray
    name: str


class Squares(gl.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        return np.full((3,), index, np.float32), index * index


class Structured(Squares):
    def __getitem__(self, index):
        return {
            "pair": Pair(np.arange(4, dtype=np.int16) + index, float(index)),
            "list": [bytes([index]), str(index)],
            "record": Record(np.full((2, 2), index, np.uint8), "r"),
            "empty": np.zeros((0, 3), np.float64),
            "scalar": np.float16(index),
        }


class Faulty(Squares):
    def __getitem__(self, index):
        if index == 3:
            raise KeyError("no three")
        if index == 5:
            raise TwoArguments("code", 5)
        if index == 7:
            raise StopIteration
        if index == 9:
            return np.zeros(9), 81
        if index == 11:
            raise type("Local", (Exception,), {})("a class that cannot be pickled")
        return np.zeros(3), index * index


class Random(Squares):
    """Augmentation by each of the three generators."""

    def __getitem__(self, index):
        return gl.get_rng().random(), np.random.random(), random.random()


class ByRng(Squares):
    def __getitem__(self, index):
        return index + gl.get_rng().random()


class Who(Squares):
    def __getitem__(self, index):
        info = gl.get_worker_info()
        return info.id, info.num_workers, np.uint64(info.seed), len(info.dataset)


def flat(loader):
    return [values[1].tolist() for values in loader]


@pytest.mark.filterwarnings("ignore:last_batch='discard' drops all")
@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_every_size_from_none_to_three_batches_over_three_epochs(way, last_batch):
    # Counting is the parent's business: where each loader starts two processes, the turning points will do.
    for size in (0, 1, 4, 5, 12) if way.processes else range(13):
        reference = gl.BatchSampler(range(size), 4, last_batch)
        with way.loader(Squares(size), 4, last_batch=last_batch) as loader:
            for _ in range(3):
                expected = [[index * index for index in batch] for batch in reference]
                assert len(loader) == len(expected)
                assert flat(loader) == expected


def test_a_loader_that_only_its_iteration_holds_gives_all_batches(way):
    assert [batch.tolist() for batch in way.loader(range(5), 2)] == [[0, 1], [2, 3], [4]]


def test_order_is_that_of_the_sampler_and_the_same_everywhere(way):
    with (
        gl.DataLoader(Squares(50), 7, shuffle=True, seed=3) as reference,
        way.loader(Squares(50), 7, shuffle=True, seed=3) as loader,
    ):
        for _ in range(3):
            assert flat(loader) == flat(reference)


def test_any_indices_and_any_samplers(way):
    table = {"a": 1, ("b", 2): 2, 3: 3}
    with way.loader(table, 2, sampler=["a", 3, ("b", 2)]) as loader:
        assert [batch.tolist() for batch in loader] == [[1, 3], [2]]
    with way.loader([10, 20, 30], batch_sampler=[[2], [0, 1], np.array([1, 1])]) as loader:
        assert [batch.tolist() for batch in loader] == [[30], [10, 20], [20, 20]]


def test_structure_dtype_and_content_are_those_of_default_batchify(way):
    dataset = Structured(10)
    with way.loader(dataset, 4) as loader:
        for batch, indices in zip(loader, ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9]), strict=True):
            assert plain(batch) == plain(gl.default_batchify([dataset[i] for i in indices]))


class Lazy(Mapping):
    """Its values cannot be read."""

    def __init__(self, index):
        self.index = index

    def __len__(self):
        return 1

    def __iter__(self):
        return iter(["x"])

    def __getitem__(self, key):
        raise OSError("the file is gone")


def test_a_batch_whose_bytes_cannot_be_counted_is_delivered(way):
    with way.loader([Lazy(i) for i in range(4)], 2, batchify_fn=AsList()) as loader:
        assert [[lazy.index for lazy in batch] for batch in loader] == [[0, 1], [2, 3]]


ARRAYS = [
    np.array([(1, 2.5)], dtype=[("a", "i2"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="datetime64[D]"),
    np.array(3.5),
    np.zeros((0, 2)),
    np.array(["text"]),
    np.frombuffer(b"read-only", np.uint8),
    np.array([{"an": "object"}], dtype=object),
    np.ones(2, np.complex64),
    np.array([True]),
]


@pytest.mark.parametrize("batchify", [list, gl.default_batchify])
def test_arrays_of_every_kind_come_out_right(way, batchify):
    pairs = [[number, number] for number in range(len(ARRAYS))]
    with way.loader(ARRAYS, batch_sampler=pairs, batchify_fn=batchify) as loader:
        for array, batch in zip(ARRAYS, loader, strict=True):
            for row in batch:
                assert row.dtype == array.dtype.newbyteorder("=") or row.dtype == array.dtype
                assert row.shape == array.shape
                assert row.tolist() == array.tolist()


@pytest.mark.skipif(OVER_RAY, reason="batches of Ray are read-only")
def test_batches_may_be_written_and_outlive_the_loader(way):
    with way.loader(Squares(8), 4) as loader:
        batches = list(loader)
        batches[0][0][:] = -1
    assert batches[0][0].tolist() == [[-1] * 3] * 4
    assert batches[1][1].tolist() == [16, 25, 36, 49]


def test_kept_batches_are_never_overwritten(way):
    with way.loader(Squares(400), 2) as loader:
        kept = [batch[1] for batch in loader] + [batch[1] for batch in loader]
    assert [batch.tolist() for batch in kept] == 2 * [[i * i, (i + 1) ** 2] for i in range(0, 400, 2)]


class Counting:
    """A sampler that counts what is drawn from it."""

    def __init__(self, size):
        self.size, self.drawn = size, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        for index in range(self.size):
            self.drawn += 1
            yield index


@pytest.mark.parametrize("prefetch", [1, 2, 5])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_window_bounds_what_is_in_flight(parallel_way, prefetch, in_order):
    sampler = Counting(30)
    with parallel_way.loader(Squares(30), 1, sampler=sampler, prefetch=prefetch, in_order=in_order) as loader:
        delivered = 0
        iterator = iter(loader)
        assert sampler.drawn == prefetch
        for _ in iterator:
            delivered += 1
            assert sampler.drawn <= delivered + prefetch
        assert delivered == 30


def test_serial_draws_one_batch_ahead_at_most():
    sampler = Counting(10)
    iterator = iter(gl.DataLoader(Squares(10), 1, sampler=sampler))
    assert sampler.drawn == 0
    for delivered, _ in enumerate(iterator, 1):
        assert sampler.drawn <= delivered + 1


def test_out_of_order_gives_every_batch_once(way):
    with way.loader(Squares(40), 3, in_order=False, prefetch=8) as loader:
        for _ in range(2):
            assert sorted(sum(flat(loader), [])) == [i * i for i in range(40)]


def test_errors_keep_their_type_say_where_and_the_next_batch_comes(way):
    with way.loader(Faulty(14), 1) as loader:
        iterator, seen = iter(loader), {}
        for index in range(14):
            try:
                seen[index] = next(iterator)[1].tolist()
            except Exception as error:
                seen[index] = error
        with pytest.raises(StopIteration):
            next(iterator)
    assert {index for index, value in seen.items() if isinstance(value, Exception)} == {3, 5, 7, 11}
    assert type(seen[3]) is KeyError
    assert seen[3].args == ("no three",)
    assert "dataset[3], batch 3 of epoch 0" in "".join(seen[3].__notes__)
    assert type(seen[5]) is TwoArguments
    assert seen[5].number == 5
    assert type(seen[7]) is RuntimeError
    assert "dataset[7] raised StopIteration" in str(seen[7])
    assert "a class that cannot be pickled" in str(seen[11])
    assert seen[12] == [144]


def test_samples_that_do_not_fit_are_named_by_their_index(way):
    with (
        way.loader(Faulty(20), 2, sampler=[0, 9]) as loader,
        pytest.raises(
            gl.errors.BatchifyError,
            match=r"sample (0|9) \(row [01] of batch 0\) at \[0\]: it has shape \(\d,\), but other samples have "
            r"shape \(\d,\)",
        ),
    ):
        next(iter(loader))


def failing_batchify(samples):
    raise ZeroDivisionError("in batchify")


def test_errors_in_batchify(way):
    with way.loader(Squares(4), 2, batchify_fn=failing_batchify) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError) as caught:
                next(iterator)
            assert "batchify_fn" in "".join(caught.value.__notes__)


def test_randomness_does_not_depend_on_who_loads(way):
    def epochs(loader):
        return [batch.tolist() for _ in range(2) for batch in loader]

    with gl.DataLoader(ByRng(20), 4, seed=5) as reference, way.loader(ByRng(20), 4, seed=5) as loader:
        assert epochs(loader) == epochs(reference)
        loader.set_epoch(0)
        again = [batch.tolist() for batch in loader]
        loader.set_epoch(0)
        assert [batch.tolist() for batch in loader] == again
        assert [batch.tolist() for batch in loader] != again


def test_global_generators_are_seeded_too(process_way):
    with gl.DataLoader(Random(20), 4, seed=5) as reference, process_way.loader(Random(20), 4, seed=5) as loader:
        assert [np.stack(batch).tolist() for batch in loader] == [np.stack(batch).tolist() for batch in reference]


def test_the_users_own_generators_are_left_alone(way):
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.standard_normal(3).tolist()
    random.seed(1)
    np.random.seed(1)
    with way.loader(ByRng(8), 4) as loader:
        list(loader)
    assert (random.random(), np.random.standard_normal(3).tolist()) == expected


def test_workers_know_who_they_are(way):
    expected = way.arguments.get("num_workers", 0)
    with way.loader(Who(40), 1) as loader:
        found = {tuple(int(field[0]) for field in batch) for batch in loader}
    assert {n for _, n, _, _ in found} == {expected}
    assert {i for i, _, _, _ in found} <= set(range(max(1, expected)))
    assert len({seed for _, _, seed, _ in found}) == len({i for i, _, _, _ in found})
    assert {size for *_, size in found} == {40}
    assert gl.get_worker_info() is None


class Policy(Squares):
    def __getitem__(self, index):
        return os.sched_getscheduler(0)


@pytest.mark.local
@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux")
def test_workers_do_not_push_the_training_thread_off_its_core(process_way):
    with process_way.loader(Policy(8), 4) as loader:
        assert {int(policy) for batch in loader for policy in batch} == {os.SCHED_BATCH}


class Initialised(Squares):
    def __getitem__(self, index):
        return INITIALISED[threading.get_ident()]


INITIALISED: dict[int, int] = {}


def note_worker(worker):
    assert gl.get_worker_info().id == worker
    INITIALISED[threading.get_ident()] = worker


def test_worker_init_fn_runs_in_every_worker_before_its_first_sample(way):
    with way.loader(Initialised(40), 1, worker_init_fn=note_worker) as loader:
        assert {int(batch[0]) for batch in loader} <= {0, 1}
    INITIALISED.clear()


def failing_init(worker):
    raise OSError(f"worker {worker} has no disk")


def test_an_error_in_worker_init_fn_is_raised_once_and_ends_the_loader(parallel_way):
    loader = parallel_way.loader(Squares(8), 1, worker_init_fn=failing_init)
    with pytest.raises(gl.errors.WorkerStartError, match="has no disk"):
        next(iter(loader))
    with pytest.raises(gl.errors.LoaderClosed):
        iter(loader)


def test_iterators_of_one_loader_are_independent(way):
    with way.loader(Squares(12), 2, shuffle=True) as loader:
        first, second = iter(loader), iter(loader)
        mixed = [(a[1].tolist(), b[1].tolist()) for a, b in zip(first, second, strict=True)]
        loader.set_epoch(0)
        assert flat(loader) == [a for a, _ in mixed]
        assert flat(loader) == [b for _, b in mixed]


def test_iterators_of_one_loader_in_two_threads(way):
    results = {}
    with way.loader(Squares(60), 2) as loader:

        def consume(name):
            results[name] = flat(loader)

        threads = [threading.Thread(target=consume, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == dict.fromkeys(range(3), [[i * i, (i + 1) ** 2] for i in range(0, 60, 2)])


def test_loaders_over_several_datasets_do_not_mix(way):
    with way.loader(Squares(10), 5) as squares, way.loader([-1, -2], 1) as negative:
        assert [(a[1].tolist(), b.tolist()) for a, b in zip(squares, negative, strict=True)] == [
            ([0, 1, 4, 9, 16], [-1]),
            ([25, 36, 49, 64, 81], [-2]),
        ]


def test_a_broken_off_epoch_leaves_nothing_to_the_next(way):
    with way.loader(Squares(40), 2) as loader:
        for stop in (0, 1, 3, 7):
            for count, _ in enumerate(loader):
                if count == stop:
                    break
            assert flat(loader) == [[i * i, (i + 1) ** 2] for i in range(0, 40, 2)]


def test_rollover_of_a_broken_off_epoch_does_not_depend_on_the_window(way):
    with way.loader(Squares(10), 4, last_batch="rollover") as loader:
        assert flat(loader) == [[0, 1, 4, 9], [16, 25, 36, 49]]
        next(iter(loader))
        assert len(loader) == 3
        assert flat(loader)[0] == [64, 81, 0, 1]


def test_auto_reload_begins_the_next_epoch_by_itself(way):
    sampler = Counting(6)
    with way.loader(Squares(6), 2, sampler=sampler, auto_reload=True) as loader:
        assert sampler.drawn > 0
        for epoch in range(1, 4):
            assert flat(loader) == [[0, 1], [4, 9], [16, 25]]
            assert sampler.drawn > 6 * epoch


def test_closing(way):
    loader = way.loader(Squares(40), 2)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    loader.close()
    assert batch[1].tolist() == [0, 1]
    with pytest.raises(gl.errors.LoaderClosed, match="this DataLoader is closed"):
        iter(loader)
    with way.loader(Squares(4), 2) as loader:
        pass
    with pytest.raises(gl.errors.LoaderClosed, match="this DataLoader is closed"):
        list(loader)


def test_a_deleted_loader_and_an_abandoned_iterator_end_their_workers(way):
    for _ in way.loader(Squares(40), 2):
        break
    iterator = iter(way.loader(Squares(40), 2))
    del iterator  # the fixture checks that nothing stays


def test_one_iterator_drained_by_two_threads_gives_every_batch_once(way):
    seen, lock = [], threading.Lock()
    with way.loader(Squares(60), 1) as loader:
        iterator = iter(loader)

        def drain():
            for batch in iterator:
                with lock:
                    seen.append(int(batch[1][0]))

        threads = [threading.Thread(target=drain) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(seen) == [i * i for i in range(60)]


def test_large_and_growing_batches(way):
    sizes = [1, 300_000, 10, 700_000, 3]
    with way.loader([np.full(size, size % 251, np.uint8) for size in sizes], 1) as loader:
        for _ in range(3):
            assert [(batch.shape[1], set(batch.ravel().tolist())) for batch in loader] == [
                (size, {size % 251}) for size in sizes
            ]


def test_threads_end_with_their_loader():
    before = threading.active_count()
    for executor in ("thread", "process"):
        with gl.DataLoader(Squares(4), 2, num_workers=2, executor=executor) as loader:
            list(loader)
        assert eventually(lambda: threading.active_count() <= before)


class BreaksOff(Counting):
    def __iter__(self):
        yield from range(5)
        raise LookupError("the index file ends here")


def test_an_error_in_the_sampler_comes_after_the_batches_before_it(way):
    with way.loader(Squares(9), 2, sampler=BreaksOff(9)) as loader:
        iterator, seen = iter(loader), []
        with pytest.raises(LookupError, match="index file"):
            seen.extend(batch[1].tolist() for batch in iterator)
        assert seen == [[0, 1], [4, 9]]
        with pytest.raises(StopIteration):
            next(iterator)


class FailsOnce(Counting):
    """Its second pass fails."""

    def __iter__(self):
        self.passes = getattr(self, "passes", 0) + 1
        for index in range(self.size):
            if self.passes == 2 and index == 3:
                raise LookupError("once")
            yield index


def test_a_pass_that_fails_keeps_what_was_carried_into_it(way):
    with way.loader(Squares(5), 2, sampler=FailsOnce(5), last_batch="rollover") as loader:
        assert flat(loader) == [[0, 1], [4, 9]]
        with pytest.raises(LookupError):
            flat(loader)
        assert flat(loader) == [[16, 0], [1, 4], [9, 16]]
