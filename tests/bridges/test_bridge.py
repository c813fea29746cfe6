"""Bridges: a thread reads any loader ahead, in order."""

import re
import struct
import threading
import time
import weakref
import zlib

import numpy as np
import pytest
from bridge_sources import Counted, Resetting, no_threads_are_left, numbers  # noqa: F401, the fixture is used by its presence
from conftest import FORK, eventually, load_mxnet, load_or_skip, run_program

from gluonloader import bridge, frameworks
from gluonloader.limits import has_gil
from gluonloader.testing import assert_resumes_exactly

pytestmark = pytest.mark.filterwarnings("ignore:.*scipy.sparse:DeprecationWarning")  # of mx.nd.array
resuming = pytest.mark.filterwarnings("ignore:resuming:RuntimeWarning")


@pytest.fixture
def mx():
    return load_mxnet() or pytest.skip("needs mxnet")


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 2, 7])
@pytest.mark.parametrize(
    "make",
    [lambda: [0, 1, 2, 3, 4], lambda: range(5), lambda: numbers, Resetting, lambda: Resetting, lambda: Counted(5),
     lambda: lambda: Counted(5), lambda: lambda epoch: iter(range(5)), lambda: lambda size=5: range(size),
     lambda: bridge(range(5))],
    ids=["list", "range", "generator", "reset", "class", "iterable", "function", "of-epoch", "default", "bridge"],
)  # fmt: skip
def test_every_epoch_yields_all_batches_of_every_kind_of_source(make, prefetch):
    with bridge(make(), prefetch) as batches:
        for _ in range(3):
            assert list(batches) == [0, 1, 2, 3, 4]


def test_torchs_loader():
    torch = load_or_skip("torch")
    loader = torch.utils.data.DataLoader(torch.arange(10), batch_size=4)
    with bridge(loader) as batches:
        assert len(batches) == 3
        for _ in range(2):
            assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with bridge(loader, output="numpy") as batches:
        assert all(type(batch) is np.ndarray for batch in batches)


def test_a_gluonloader_with_workers():
    with FORK.loader(range(10), 4, True) as loader, bridge(loader) as batches:
        found = [[batch.tolist() for batch in batches] for _ in range(2)]
        assert len(batches) == 3
    with FORK.loader(range(10), 4, True) as loader:
        assert found == [[batch.tolist() for batch in loader] for _ in range(2)]


def test_an_iterator_without_reset_has_one_epoch():
    with bridge(iter([1, 2])) as batches:
        assert list(batches) == [1, 2]
        with pytest.raises(
            RuntimeError, match=r"a list_iterator can be read only once; pass bridge\(\) a function that makes it"
        ):
            next(iter(batches))
    generator = numbers()
    with bridge(lambda: generator) as batches:
        assert list(batches) == [0, 1, 2, 3, 4]
        with pytest.raises(RuntimeError, match="a numbers can be read only once"):
            next(iter(batches))


def test_set_epoch_of_a_source_and_its_sampler_is_called():
    class Told:
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

    class Source(Told):
        sampler = Told()

        def __iter__(self):
            return iter([(self.epoch, self.sampler.epoch)])

    with bridge(Source()) as batches:
        assert list(batches) == [(0, 0)]
        batches.set_epoch(4)
        assert list(batches) == [(4, 4)]
        assert list(batches) == [(5, 5)]


def test_a_source_is_reset_once_between_two_epochs():
    source = Resetting(3)
    with bridge(source) as batches:
        assert list(batches) == [0, 1, 2]
        assert source.resets == 0  # some sources break if they are reset before they are read
        for _ in batches:
            break
        assert list(batches) == [0, 1, 2]
        assert source.resets == 2
        batches.set_epoch(9)
        assert list(batches) == [0, 1, 2]
        assert source.resets == 9
    with bridge(lambda: source) as batches:
        batches.set_epoch(5)
        assert list(batches) == []  # it was read before, outside of this bridge
        assert list(batches) == list(batches) == [0, 1, 2]


def test_an_order_that_depends_on_the_number_of_resets_resumes():
    class Turning(Resetting):
        def __next__(self):
            return (super().__next__() + self.resets) % self.size

    assert_resumes_exactly(lambda: bridge(Turning()), epochs=3)
    with bridge(Turning()) as batches:
        assert [list(batches)[0] for _ in range(3)] == [0, 1, 2]


def test_length_is_that_of_the_source():
    assert len(bridge([1, 2, 3])) == 3
    with pytest.raises(TypeError):
        len(bridge(numbers))
    assert list(bridge(numbers)) == [0, 1, 2, 3, 4]


# -- MXNet -------------------------------------------------------------------------------------------------------------


def test_mxnets_array_iterator(mx):
    data = np.arange(14, dtype=np.float32).reshape(7, 2)

    def make():
        return mx.io.NDArrayIter(data, np.arange(7, dtype=np.float32), batch_size=3, last_batch_handle="pad")

    with bridge(make()) as batches:
        for _ in range(2):
            found = list(batches)
            assert [type(batch) for batch in found] == [mx.io.DataBatch] * 3
            assert [batch.pad for batch in found] == [0, 0, 2]
            assert [batch.label[0].asnumpy().tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    for output, kind in (("numpy", np.ndarray), ("mxnet", mx.nd.NDArray)):
        with bridge(make(), output=output) as batches:
            x, y = next(iter(batches))
            assert type(x) is type(y) is kind
            values = frameworks.converter("numpy")
            assert values(x).tolist() == data[:3].tolist()
            assert values(y).tolist() == [0, 1, 2]


@pytest.mark.parametrize("output", [None, "numpy"])
def test_batches_of_mxnets_readers_do_not_change_after_delivery(mx, output, tmp_path):
    """MXNet's readers write into arrays that they returned before; a bridge that reads ahead has to copy them."""
    values = np.arange(400).reshape(200, 2)
    np.savetxt(tmp_path / "data.csv", values, fmt="%d", delimiter=",")

    def make():
        return mx.io.CSVIter(data_csv=str(tmp_path / "data.csv"), data_shape=(2,), batch_size=4)

    with bridge(make, prefetch=8, output=output) as batches:
        for _ in range(2):
            kept = [batch[0] if output else batch.data[0].asnumpy for batch in batches]
            mx.nd.waitall()
            found = np.concatenate([array if output else array() for array in kept])
            assert found.tolist() == values.tolist()


def test_a_batch_without_labels_keeps_none(mx):
    class Unlabelled(mx.io.DataIter):
        def __init__(self):
            super().__init__()
            self.given = False

        def reset(self):
            self.given = False

        def next(self):
            if self.given:
                raise StopIteration
            self.given = True
            return mx.io.DataBatch([mx.nd.ones((2,))], None, index=np.arange(2))

    (batch,) = bridge(Unlabelled())
    assert batch.label is None
    assert batch.index.tolist() == [0, 1]
    (batch,) = bridge(Unlabelled(), output=lambda array: array.asnumpy().sum())
    assert batch == (2.0,)


def png(value):
    """An image of 8 x 8 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head, rows = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0), (b"\0" + bytes([value] * 24)) * 8
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@resuming
def test_mxnets_image_reader_resumes_exactly(mx, tmp_path):
    """The order of this reader depends on the number of resets, and its threads make the batches."""
    paths = {"path_imgrec": str(tmp_path / "images.rec"), "path_imgidx": str(tmp_path / "images.idx")}
    records = mx.recordio.MXIndexedRecordIO(paths["path_imgidx"], paths["path_imgrec"], "w")
    for number in range(20):
        header = mx.recordio.IRHeader(0, float(number), number, 0)
        records.write_idx(number, mx.recordio.pack(header, png(number)))
    records.close()

    def make():
        shuffled = {"shuffle": True, "seed": 1, "verbose": False}
        return bridge(mx.io.ImageRecordIter(**paths, data_shape=(3, 8, 8), batch_size=4, **shuffled), prefetch=6)

    assert_resumes_exactly(make, epochs=2, points=[0, 2, 5, 7])
    with make() as batches:
        epochs = [np.concatenate([batch.label[0].asnumpy() for batch in batches]).tolist() for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]


@resuming
def test_mxnets_array_iterator_resumes_exactly(mx):
    data = np.arange(20, dtype=np.float32)
    assert_resumes_exactly(lambda: bridge(mx.io.NDArrayIter(data, data, batch_size=3)), epochs=2)


# -- what it gives -----------------------------------------------------------------------------------------------------


def test_output_converts_in_the_thread_and_keeps_the_structure():
    seen = set()

    def double(array):
        seen.add(threading.current_thread())
        return array * 2

    with bridge([{"x": np.ones(2), "name": ["a"]}], output=double) as batches:
        (batch,) = batches
    assert batch["x"].tolist() == [2, 2]
    assert batch["name"] == ["a"]
    assert len(seen) == 1
    assert threading.current_thread() not in seen


def test_without_output_a_batch_is_the_same_object():
    batch = {"x": np.ones(2)}
    (found,) = bridge([batch])
    assert found is batch


def test_output_torch():
    torch = load_or_skip("torch")
    ((x, y),) = bridge([(np.ones((2, 2)), np.arange(2))], output="torch")
    assert type(x) is type(y) is torch.Tensor


@pytest.mark.parametrize("prefetch", [1, 3])
def test_the_thread_reads_at_most_prefetch_batches_ahead(prefetch):
    source = Counted()
    with bridge(source, prefetch) as batches:
        assert source.iterations == 0  # nothing is read before the first iteration
        iterator = iter(batches)
        for delivered in range(1, 6):
            next(iterator)
            assert eventually(lambda: source.read == delivered + prefetch)
        assert source.read == 5 + prefetch


frees_at_once = pytest.mark.skipif(
    not has_gil(), reason="without a GIL, Python frees an object only when the thread that made it runs again"
)


@frees_at_once
def test_a_delivered_batch_is_referenced_only_by_the_user():
    class Batch:
        pass

    with bridge(lambda: (Batch() for _ in range(3)), prefetch=1) as batches:
        iterator = iter(batches)
        seen = weakref.ref(next(iterator))
        assert eventually(lambda: seen() is None)
        rest = [weakref.ref(batch) for batch in iterator]
        assert eventually(lambda: all(batch() is None for batch in rest))


@frees_at_once
def test_a_delivered_batch_is_not_held_while_the_source_makes_the_next_one():
    waits, go = threading.Event(), threading.Event()

    def source():
        yield np.ones(3)
        waits.set()
        go.wait()

    with bridge(source) as batches:
        iterator = iter(batches)
        seen = weakref.ref(next(iterator))
        assert waits.wait(30)
        try:
            assert eventually(lambda: seen() is None)
        finally:
            go.set()


def test_stats_name_the_slower_side():
    ask, give = threading.Event(), threading.Event()

    def slow():
        for number in range(3):
            ask.set()
            give.wait(30)
            yield number

    with bridge(slow) as batches:
        iterator = iter(batches)
        helper = threading.Thread(target=lambda: (ask.wait(30), threading.Event().wait(0.2), give.set()))
        helper.start()
        assert list(iterator) == [0, 1, 2]
        helper.join()
        stats = batches.stats()
        assert stats.batches == 3
        assert stats.waited_s > 0
        assert stats.made_s > 0
        assert stats.slower == "source"
    with bridge(Counted(), prefetch=1) as batches:
        iterator = iter(batches)
        for _ in range(3):
            next(iterator)
            threading.Event().wait(0.05)
        next(iterator)
        next(iterator)
        assert batches.stats().slower == "trainer"


def test_statistics_count_samples_and_name_the_source():
    def source():
        for number in range(40):
            time.sleep(0.001)
            yield {"x": np.zeros((8, 4), np.float32), "name": f"batch {number}"}

    with bridge(source) as batches:
        assert len(list(batches)) == 40
        stats = batches.stats()
    assert (stats.samples, stats.nbytes) == (40 * 8, 40 * 8 * 4 * 4)
    assert "the source is the limit (" in stats.advice
    assert "give it more workers" in stats.advice


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": None}, "source=None: pass an iterable, or a function that returns one"),
        ({"source": 5}, "source=5: pass an iterable, or a function that returns one"),
        ({"source": lambda a, b: []}, "source=.*its only argument, if any, is the number of the epoch"),
        ({"prefetch": 0}, "prefetch=0: must be an int >= 1"),
        ({"prefetch": 1.5}, r"prefetch=1\.5: must be an int >= 1"),
        ({"output": "tensorflow"}, "output='tensorflow': must be one of 'numpy', 'mxnet', 'torch', 'jax'"),
        ({"pin_memory": "yes"}, "pin_memory='yes': must be True or False"),
        ({"pin_memory": True, "output": "numpy"}, "pin_memory=True: output='numpy' has no page-locked memory"),
        ({"timeout": 0}, "timeout=0: must be a number of seconds > 0, or None"),
        ({"timeout": "1"}, "timeout='1': must be a number of seconds > 0, or None"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named_in_the_constructor(arguments, message):
    with pytest.raises(ValueError, match=message):
        bridge(**{"source": [1], **arguments})


@pytest.mark.spawn
def test_the_error_for_a_missing_framework_says_how_to_install_it():
    done = run_program("import sys\nsys.modules['jax'] = None\nimport gluonloader as gl\ngl.bridge([1], output='jax')")
    assert re.search(r'^gluonloader.*MissingExtraError: .*pip install "gluonloader\[jax\]"', done.stderr, re.MULTILINE)


def test_repr_shows_the_source_and_the_position_of_an_iterator():
    def batches_of_epoch(epoch):
        return [1]

    with bridge([1, 2]) as batches:
        assert repr(batches) == "Bridge(list(2))"
        iterator = iter(batches)
        next(iterator)
        assert repr(iterator) == "LoaderIterator(epoch 0, 1 of 2 batches of list(2))"
    assert repr(batches) == "Bridge(list(2), closed)"
    with bridge(batches_of_epoch) as batches:
        assert repr(batches) == "Bridge(batches_of_epoch)"
        assert repr(iter(batches)) == "LoaderIterator(epoch 0, 0 batches of batches_of_epoch)"
