"""`assert_resumes_exactly`: correct loaders pass, and each kind of wrong loader is found and named."""

import collections
import dataclasses
import re

import numpy as np
import pytest
from conftest import load, load_mxnet

from gluonloader import DataLoader, frameworks, get_rng
from gluonloader.testing import assert_resumes_exactly


class Fake:
    """A correct loader: batch b of epoch e is a function of both. Subclasses break one thing each."""

    BATCHES = 4

    def __init__(self):
        self.epoch = self.batch = 0
        self.closed = False

    def make(self, epoch, batch):
        rng = np.random.default_rng([epoch, batch])
        return {"x": rng.random((2, 3)), "names": ["a", f"{epoch}-{batch}"]}

    def __iter__(self):
        while self.batch < self.BATCHES:
            batch = self.make(self.epoch, self.batch)
            self.batch += 1
            yield batch
        self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state):
        self.epoch, self.batch = state["epoch"], state["batch"]

    def close(self):
        self.closed = True


class ForgetsAll(Fake):
    def load_state_dict(self, state):
        pass


class ForgetsTheEpoch(Fake):
    def load_state_dict(self, state):
        self.batch = state["batch"]


class Doubles(Fake):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.batch = max(0, self.batch - 1)


class Loses(Fake):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.batch += self.batch > 1


class OtherNumbers(Fake):
    """It does not save the generator of its random numbers."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def make(self, epoch, batch):
        return {**super().make(epoch, batch), "noise": [{"eps": self.rng.random(5).astype("f4")}]}


class NeverTheSame(Fake):
    made = 0

    def make(self, epoch, batch):
        NeverTheSame.made += 1
        return NeverTheSame.made


class Endless(Fake):
    """It yields one batch too many after a resume."""

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.more = True

    def __iter__(self):
        yield from super().__iter__()
        if getattr(self, "more", False):
            yield 0


class NoJson(Fake):
    def state_dict(self):
        return {**super().state_dict(), "rng": np.random.default_rng()}


class Large(Fake):
    def state_dict(self):
        return {**super().state_dict(), "seen": list(range(5000))}


def kept(kind, loaders):
    def make():
        loaders.append(kind())
        return loaders[-1]

    return make


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_correct_loader_passes_and_every_loader_is_closed(epochs):
    loaders = []
    assert_resumes_exactly(kept(Fake, loaders), epochs=epochs)
    points = epochs * (Fake.BATCHES + 1) + 1  # within each epoch and at its end, and after the last one has ended
    assert len(loaders) == 2 + 2 * points
    assert all(loader.closed for loader in loaders)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ForgetsAll, r"^resumed after 1 batches of epoch 0: batch 1 of epoch 0 at \['x'\]: element \[0, 0\] of 6"
                     r" \(6 differ\) is 0\.\d+, expected 0\.\d+"),
        (ForgetsTheEpoch, r"^resumed after 0 batches of epoch 1: batch 0 of epoch 1 at \['x'\]: element"),
        (Doubles, r"^resumed after 1 batches of epoch 0: batch 1 of epoch 0 at \['x'\]"),
        (Loses, r"^resumed after 2 batches of epoch 0: batch 2 of epoch 0 at \['x'\]"),
        (OtherNumbers, r"batch 1 of epoch 0 at \['noise'\]\[0\]\['eps'\]: element \[0\] of 5 \(5 differ\)"),
        (NeverTheSame, r"^two fresh loaders differ, before any resume: batch 0 of epoch 0: is \d+, expected 1"),
        (Endless, r"^resumed after 0 batches of epoch 0: epoch 0 has 5 batches from batch 0 on, expected 4"),
        (NoJson, r"^state_dict\(\) after 0 batches of epoch 0 is not JSON: .*Generator"),
        (Large, r"^state_dict\(\) after 0 batches of epoch 0 is \d\d,\d+ bytes of JSON; it must be less than 10,000"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)  # fmt: skip
def test_each_kind_of_wrong_loader_is_reported(kind, message):
    loaders = []
    with pytest.raises(AssertionError, match=message):
        assert_resumes_exactly(kept(kind, loaders))
    assert all(loader.closed for loader in loaders)


def test_only_the_given_points_are_checked():
    assert_resumes_exactly(ForgetsAll, points=[0])
    with pytest.raises(AssertionError, match="resumed after 3 batches of epoch 0"):
        assert_resumes_exactly(ForgetsAll, points=[0, 3])
    with pytest.raises(AssertionError, match="resumed after 1 batches of epoch 1"):
        assert_resumes_exactly(ForgetsAll, epochs=2, points=[5])


def test_a_long_run_is_checked_at_twenty_points():
    class Long(Fake):
        BATCHES = 300

        def make(self, epoch, batch):
            return epoch, batch

    loaders = []
    assert_resumes_exactly(kept(Long, loaders))
    assert len(loaders) == 2 + 2 * (20 + 1)


ONE = object()


@dataclasses.dataclass
class Sample:
    x: object


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (np.zeros(2), np.zeros(2, "f4"), "is ndarray of float32, shape (2,), expected ndarray of float64, shape"),
        (
            np.zeros((1, 2)),
            np.zeros((2, 1)),
            "is ndarray of float64, shape (2, 1), expected ndarray of float64, shape (1, 2)",
        ),
        (np.array([0.0, 0.0]), np.array([0.0, -0.0]), "element [1] of 2 (1 differ) is -0.0, expected 0.0"),
        (np.array([[1, 2], [3, 4]], order="F"), np.array([[1, 2], [5, 4]]), "element [1, 0] of 4 (1 differ) is 5"),
        (np.array(1), np.array(2), "its value is 2, expected 1"),
        (np.array(["a", "b"]), np.array(["a", "c"]), "element [1] of 2 (1 differ) is 'c', expected 'b'"),
        (np.array([{}, "b"], object), np.array([{}, "c"], object), "element [1] of 2 (1 differ) is c"),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 3.0)], "i4,f8"), "element [0] of 1"),
        (
            np.array([np.ones(2), 1], object),
            np.array([np.zeros(2), 1], object),
            "element [0] of 2 (1 differ) is [0. 0.]",
        ),
        (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]), "at .mask: element [1] of 2 (1 differ)"),
        (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([3, 2], mask=[0, 1]), "at .data: element [0] of 2 (1 differ)"),
        ((1, 2), [1, 2], "is list of ['[0]', '[1]'], expected tuple of ['[0]', '[1]']"),
        ({"x": 1}, {"x": 1, "y": 2}, "is dict of [\"['x']\", \"['y']\"], expected dict of [\"['x']\"]"),
        ({"x": [1, {"y": 2}]}, {"x": [1, {"y": 3}]}, "at ['x'][1]['y']: is 3, expected 2"),
        (Sample([1]), Sample([2]), "at .x[0]: is 2, expected 1"),
        (1, 1.0, "is float, expected int"),
        (1, True, "is bool, expected int"),
        (np.float32(1), np.float32(2), "its value is 2.0, expected 1.0"),
        (None, 0, "is int, expected NoneType"),
        ("a", "b", "is 'b', expected 'a'"),
    ],
    ids=repr,
)
def test_a_difference_is_reported_with_its_path_and_both_values(one, other, message):
    class Differs(Fake):
        resumed = False

        def make(self, epoch, batch):
            return other if self.resumed and batch == 2 else one

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.resumed = True

    with pytest.raises(AssertionError) as raised:
        assert_resumes_exactly(Differs, points=[1])
    text = str(raised.value)
    assert message in text
    assert text.startswith("resumed after 1 batches of epoch 0: batch 2 of epoch 0")


@pytest.mark.parametrize(
    "batch",
    [
        np.array([np.nan, 1, np.inf]), np.array([complex(np.nan, 1)]), float("nan"), np.float32("nan"), ONE,
        np.zeros((0, 3)), np.array([], object), np.array([None, "a"], object), np.array([""]), b"x", None, [], {}, (),
        np.array(["2020-01-01", "NaT"], "M8[D]"), Sample(np.ones(2)), collections.OrderedDict(a=1), frozenset([1]),
        np.array([(1, np.nan)], "i4,f8"), np.array([np.ones(2), {"x": np.ones(3)}], object),
        np.ma.array([1, 2], mask=True),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)),
)  # fmt: skip
def test_equal_batches_pass(batch):
    class Same(Fake):
        def make(self, epoch, number):
            return batch

    assert_resumes_exactly(Same, points=[0, 2])


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow"])
def test_tables_are_compared(name):
    """Those of pandas and polars are compared by `==` element by element."""
    module = pytest.importorskip(name)
    make = getattr(module, "DataFrame", getattr(module, "table", None))

    class Tables(Fake):
        resumed = wrong = False

        def make(self, epoch, batch):
            return make({"x": [1, 2 + (self.resumed and self.wrong)]})

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.resumed = True

    assert_resumes_exactly(Tables, points=[1])
    Tables.wrong = True
    with pytest.raises(AssertionError, match="batch 1 of epoch 0: is"):
        assert_resumes_exactly(Tables, points=[1])


def test_objects_that_cannot_be_compared_are_an_error():
    class Odd(Fake):
        def make(self, epoch, batch):
            return {"x": collections.deque([np.ones(2)])}

    with pytest.raises(TypeError, match=r"\['x'\]: two objects of deque cannot be compared \(The truth value"):
        assert_resumes_exactly(Odd)


def test_nans_with_different_bits_are_equal():
    class Nans(Fake):
        signs = iter([1, -1] * 1000)

        def make(self, epoch, batch):
            return np.copysign(np.full(3, np.nan), next(self.signs))

    Nans.BATCHES = 3
    assert_resumes_exactly(Nans, points=[1])


@pytest.mark.parametrize("name", ["torch", "jax", "mxnet"])
def test_arrays_of_frameworks_are_compared_by_value(name):
    if (load_mxnet() if name == "mxnet" else load(name)) is None:
        pytest.skip(f"needs {name}")
    from_numpy = frameworks.named(name).from_numpy

    class Arrays(Fake):
        wrong = False

        def make(self, epoch, batch):
            return (from_numpy(np.array([1, 2 + (self.wrong and batch == 3)], np.float32)),)

    assert_resumes_exactly(Arrays, points=[2])

    class Wrong(Arrays):
        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.wrong = True

    with pytest.raises(AssertionError, match=r"batch 3 of epoch 0 at \[0\]: element \[1\] of 2 .* 3\.0.* 2\.0"):
        assert_resumes_exactly(Wrong, points=[2])


def test_a_sparse_tensor_is_an_error():
    torch = load("torch")
    if torch is None:
        pytest.skip("needs torch")

    class Odd(Fake):
        def make(self, epoch, batch):
            return {"x": torch.ones(2).to_sparse()}

    with pytest.raises(TypeError, match=r"at \['x'\]: a Tensor that is sparse.* dense arrays in host memory"):
        assert_resumes_exactly(Odd)


def test_the_attributes_of_mxnets_batches_are_compared():
    mx = load_mxnet()
    if mx is None:
        pytest.skip("needs mxnet")

    class Batches(Fake):
        pad = 0

        def make(self, epoch, batch):
            return mx.io.DataBatch([mx.nd.ones((2,))], [mx.nd.full((1,), batch)], pad=self.pad)

    assert_resumes_exactly(Batches, points=[2])

    class Wrong(Batches):
        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.pad = 1

    with pytest.raises(AssertionError, match=r"at \.pad: is 1, expected 0"):
        assert_resumes_exactly(Wrong, points=[2])


class Augmented:
    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index, get_rng().random(3)


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_data_loader_passes(any_way, last_batch):
    points = None if any_way.name == "serial" else [0, 2]
    assert_resumes_exactly(lambda: any_way.loader(Augmented(), 3, True, last_batch=last_batch), epochs=2, points=points)


def test_a_dataset_with_hidden_randomness_is_found():
    class Hidden(Augmented):
        rng = np.random.default_rng()

        def __getitem__(self, index):
            return index, self.rng.random()

    with pytest.raises(AssertionError, match=r"two fresh loaders differ.*batch 0 of epoch 0 at \[1\]: element \[0\]"):
        assert_resumes_exactly(lambda: DataLoader(Hidden(), 3, seed=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs=0: must be an int >= 1"),
        ({"points": [1.5]}, r"points=1\.5: must be an int from 0 to 4, the number of batches"),
        ({"points": [5]}, r"points=5: must be an int from 0 to 4, the number of batches"),
        ({"make_loader": Fake()}, "make_loader=.*: pass a function that makes a loader: lambda: DataLoader"),
        ({"make_loader": lambda: [1, 2]}, r"make_loader=.*it returned <class 'list'>, which has no state_dict"),
        ({"make_loader": lambda loader=Fake(): loader}, "make_loader=.*the same loader twice"),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value)),
)  # fmt: skip
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        assert_resumes_exactly(**{"make_loader": Fake, **arguments})


def test_a_loader_without_batches_is_an_error():
    with pytest.raises(ValueError, match="epoch 0 of its loader has no batches"):
        assert_resumes_exactly(lambda: DataLoader([], batch_size=2, seed=0))
