"""Arrays of torch, JAX and MXNet, as samples and as batches: one body of tests for each framework that is installed."""

import dataclasses
import gc
import random
import re
from collections import OrderedDict

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, SPAWN, load_or_skip, mapped_slabs, run_program
from framework_arrays import Plain, Point, Samples, make, package, values

import gluonloader.mxnet
from gluonloader import DataLoader, default_batchify, frameworks

gluonloader.mxnet.patch_numpy()
FRAMEWORKS = ["torch", "jax", "mxnet"]


@dataclasses.dataclass(frozen=True)
class Pair:
    x: object
    y: object


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    """Its name; skipped where it is not installed."""
    load_or_skip(request.param)
    return request.param


def test_samples_of_a_framework_become_batches_of_it(framework, every_way):
    with every_way.loader(Samples(framework), 4) as loader:
        batches = list(loader)
    for number, batch in enumerate(batches):
        assert package(batch["x"]) == framework
        assert batch["x"].shape == (4, 2, 3)
        assert values(batch["x"])[:, 0, 0].tolist() == [4 * number + i for i in range(4)]
        assert type(batch["i"]) is np.ndarray


def test_output_converts_every_array_and_nothing_else(framework, every_way):
    with every_way.loader(Plain(), 4, output=framework) as loader:
        batches = list(loader)
    for number, batch in enumerate(batches):
        assert type(batch) is Point
        numbers, names = batch.y
        assert package(batch.x) == package(numbers) == framework
        assert values(batch.x)[:, 1, 2].tolist() == values(numbers).tolist() == [4 * number + i for i in range(4)]
        assert names == [f"s{4 * number + i}" for i in range(4)]


def test_the_statistics_count_the_bytes_of_its_arrays(framework):
    with SERIAL.loader(Samples(framework), 4) as loader:
        list(loader)
        assert loader.stats().nbytes == 12 * (2 * 3 * 4 + 8)  # float32, and an int64 of NumPy


def test_output_numpy_gives_numpy_arrays(framework, any_way):
    with any_way.loader(Samples(framework), 4, output="numpy") as loader:
        assert all(type(array) is np.ndarray for batch in loader for array in batch.values())


@pytest.mark.parametrize("other", ["numpy", *FRAMEWORKS])
def test_from_any_framework_to_any_other(framework, other):
    load_or_skip(other)
    with FORK.loader(Samples(framework), 12, output=other) as loader:
        (batch,) = loader
    assert package(batch["x"]) == package(batch["i"]) == other
    assert values(batch["x"])[:, 0, 0].tolist() == values(batch["i"]).tolist() == list(range(12))


def test_a_loan_lives_as_long_as_the_frameworks_array(framework, no_leaks):
    """Batches are released in random order, with garbage collections in between."""
    rng, kept = random.Random(0), {}
    with FORK.loader(Plain(4000), 8, output=framework) as loader:
        for number, batch in enumerate(loader):
            kept[number] = batch.x
            del batch
            while len(kept) > rng.randrange(1, 30):
                old = rng.choice(list(kept))
                assert values(kept.pop(old))[:, 0, 0].tolist() == [8 * old + i for i in range(8)]
            if rng.random() < 0.02:
                gc.collect()
    for old, array in kept.items():
        assert values(array)[:, 1, 1].tolist() == [8 * old + i for i in range(8)]
    kept.clear()
    del array
    gc.collect()


def test_memory_is_shared_where_the_framework_can(framework):
    dataset = [np.full(10_000, index, np.float32) for index in range(64)]
    with FORK.loader(dataset, 16, output=framework) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        mapped = mapped_slabs()
        assert batch.shape == (16, 10_000)
        loader.close()
        del iterator
        gc.collect()
        assert 0 < mapped_slabs() <= mapped  # only the batch still holds one


def test_a_users_batchify_may_return_a_frameworks_arrays(framework):
    def halves(samples):
        array = np.stack([np.asarray(sample.x) for sample in samples])
        return [make(framework, array[:2]), make(framework, array[2:])]

    if framework == "jax":
        pytest.skip("JAX cannot be started in a forked worker")
    with FORK.loader(Plain(4), 4, batchify_fn=halves) as loader:
        ((first, second),) = loader
    assert package(first) == package(second) == framework
    assert values(first)[:, 0, 0].tolist() == [0, 1]
    assert values(second)[:, 0, 0].tolist() == [2, 3]


def test_default_batchify_without_a_loader(framework):
    samples = Samples(framework)
    batch = default_batchify([samples[i] for i in range(3)])
    assert package(batch["x"]) == framework
    assert values(batch["x"])[:, 0, 0].tolist() == [0, 1, 2]


def test_a_callable_output_gets_each_array():
    seen = []

    def double(array):
        seen.append(array.shape)
        return array * 2

    with SERIAL.loader(Plain(2), 2, output=double) as loader:
        (batch,) = loader
    assert seen == [(2, 2, 3), (2,)]
    assert batch.x[1].tolist() == [[2, 2, 2]] * 2
    assert batch.y[1] == ["s0", "s1"]


def test_a_stop_iteration_of_output_does_not_end_the_epoch(any_way):
    def convert(array):
        if 5 in array:
            raise StopIteration("no fives")
        return array

    with any_way.loader(np.arange(12), 4, output=convert) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(RuntimeError, match=r"output raised StopIteration\(no fives\)") as caught:
            next(iterator)
        assert "gluonloader: while output converted the batch" in caught.value.__notes__
        assert next(iterator).tolist() == [8, 9, 10, 11]


def test_an_error_of_output_says_where_and_the_next_batch_comes(parallel_way):
    def picky(array):
        if array.ndim == 1 and 5 in array:
            raise ValueError("no fives")
        return array

    with parallel_way.loader(Plain(12), 4, output=picky) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ValueError, match="no fives") as caught:
            next(iterator)
        assert "gluonloader: while output converted [1][0]" in caught.value.__notes__
        assert next(iterator).x.shape == (4, 2, 3)


@pytest.mark.parametrize(
    "batch",
    [
        (1, "a", None, b"b"),
        Point(np.zeros(2), [np.ones(1)]),
        OrderedDict(b=np.zeros(2), a=(np.ones(1),)),
        Pair(np.zeros(2), {"deep": [np.ones(1)]}),
        [],
    ],
    ids=str,
)
def test_containers_stay_what_they_are(batch):
    mapped = frameworks.map_arrays(np.copy, batch)
    assert type(mapped) is type(batch)
    assert repr(mapped) == repr(batch)
    assert frameworks.map_arrays(lambda array: array, batch) is batch


@pytest.mark.parametrize("output", ["tensorflow", 3, ["numpy"]])
def test_an_unknown_output_is_refused(output):
    with pytest.raises(ValueError, match=r"^output=.*must be one of 'numpy', 'mxnet', 'torch', 'jax'"):
        DataLoader([1], 1, output=output)


@pytest.mark.spawn
def test_a_missing_framework_says_how_to_install_it():
    done = run_program(
        "import sys\nsys.modules['torch'] = None\nimport gluonloader\ngluonloader.DataLoader([1], 1, output='torch')"
    )
    assert re.search(r'MissingExtraError: .*pip install "gluonloader\[torch\]"', done.stderr)


def test_texts_times_and_objects_stay_numpy_arrays(framework):
    def batch(_):
        return (
            np.array(["a"]),
            np.array(["2026-01-01"], "M8[D]"),
            np.array([None]),
            np.zeros(1, [("a", "f4"), ("b", "i4")]),
        )

    with SERIAL.loader([1], 1, batchify_fn=batch, output=framework) as loader:
        ((*arrays,),) = loader
    assert all(type(array) is np.ndarray for array in arrays)


@pytest.mark.parametrize("way", [FORKSERVER, SPAWN], ids=str)
def test_a_dataset_of_arrays_of_a_framework_is_sent_to_workers(framework, way):
    whole = make(framework, np.arange(24, dtype=np.float32).reshape(12, 2))
    with way.loader([whole], 1, batchify_fn=len) as loader:
        assert list(loader) == [1]


def test_numpy_arrays_cannot_be_pinned_and_say_so_once():
    with SERIAL.loader([1, 2], 1, pin_memory=True) as loader:
        with pytest.warns(RuntimeWarning, match="NumPy arrays stay in ordinary memory") as warned:
            assert len(list(loader)) == 2
    assert len(warned) == 1
