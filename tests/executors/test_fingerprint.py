"""Ranks that share workers have passed the same dataset: which differences are noticed, and which do not count."""

import array
import collections
import copy
import datetime
import decimal
import enum
import functools
import io
import json
import mmap
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from conftest import load_or_skip

from gluonloader import ArrayDataset, IterableDataset, SimpleDataset
from gluonloader.executors.shared.fingerprint import fingerprint, fingerprints

pytestmark = pytest.mark.numpy_only
LONG = 200_000


class Held:
    """A dataset with attributes."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("lock", "x")

    def __init__(self, x):
        self.lock, self.x = threading.Lock(), x


class NoPickle(Held):
    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be pickled")


class WithoutCache(Held):
    """Its pickle does not contain the cache."""

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "cache"}


class Labels(list):
    @classmethod
    def numbered(cls, number):
        labels = cls()
        labels.number = number
        return labels


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(collections.namedtuple("Pair", ["x", "y"])):
    pass


def captures(value):
    return lambda: value


def defaults(value):
    return lambda index=value: index


def keyword_defaults(value):
    return lambda *, index=value: index


def decorated(value):
    @functools.wraps(captures)
    def function():
        return 0

    function.limit = value
    return function


class Moved:
    def method(self):
        return 1


def bound(value):
    moved = Moved()
    moved.x = value
    moved.bound = moved.method  # contains itself
    return moved.bound


def cycle(value):
    held = Held(lock=threading.Lock())
    held.itself, held.x = held, value
    return held


def nested(value, levels):
    for _ in range(levels):
        value = [value]
    return value


def opened(path):
    with open(path, "rb") as file:
        return Held(file=open(path, "rb"), memory=mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def changed(values, place, value):
    values = list(values)
    values[place] = value
    return values


def array_with(place, value=1, size=3_000_000, dtype=np.uint8):
    values = np.zeros(size, dtype)
    values[place] = value
    return values


def masked(mask):
    return np.ma.MaskedArray(np.arange(3), mask)


def instances(make):
    return [make(1), make(2)]


DIFFERENCES = {
    "int": (1, 2),
    "type of a number": (1, 1.0),
    "bool and int": (True, 1),
    "large int": (10**5000, 10**5000 + 1),
    "float": (0.1, 0.2),
    "text": ("a", "b"),
    "long text": ("a" * 5000 + "b", "a" * 5000 + "c"),
    "bytes": (b"a", b"b"),
    "text and bytes": ("a", b"a"),
    "length of a list": ([1, 2], [1, 2, 3]),
    "order of a list": ([1, 2, 3], [3, 2, 1]),
    "list and tuple": ([1, 2], (1, 2)),
    "borders of lists": ([[1], [2, 3]], [[1, 2], [3]]),
    "last item of a long list": (list(range(LONG)), changed(range(LONG), -1, 0)),
    "items of a list in its middle": (list(range(9000)), changed(range(9000), 5000, 0)),
    "many items of a long list": (list(range(LONG)), list(range(LONG // 2)) + [0] * (LONG // 2)),
    "value of a dict": ({"a": 1}, {"a": 2}),
    "key of a dict": ({"a": 1}, {"b": 1}),
    "set of the same length": ({"a", "b"}, {"a", "c"}),
    "set of tuples": ({("a", 1), ("b", 2)}, {("a", 1), ("b", 3)}),
    "set of frozensets": ({frozenset("ab")}, {frozenset("ac")}),
    "set of floats": ({0.5, 1.5}, {0.5, 2.5}),
    "start of an array": (array_with(0), array_with(0, 2)),
    "end of an array": (array_with(-1), array_with(-1, 2)),
    "middle of an array of 1 MB": (array_with(400_000, size=1_000_000), array_with(400_001, size=1_000_000)),
    "half of a large array": (array_with(slice(None)), array_with(slice(1_000_000, None))),
    "shape of an array": (np.zeros((2, 3)), np.zeros((3, 2))),
    "dtype of an array": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "names of fields": (np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])),
    "array of objects": (np.array(["a", None], object), np.array(["b", None], object)),
    "mask of an array": (masked([True, False, False]), masked([False, False, True])),
    "number of NumPy": (np.float32(1), np.float64(1)),
    "list of arrays": (
        [np.zeros(2000)] * 300,
        changed([np.zeros(2000)] * 300, 150, array_with(1000, 1.0, 2000, float)),
    ),
    "array.array": instances(lambda x: array.array("i", [x])),
    "memoryview": instances(lambda x: memoryview(bytes([x]))),
    "attribute": instances(lambda x: Held(x=x)),
    "name of an attribute": (Held(x=1), Held(y=1)),
    "class": (Held(x=1), NoPickle(x=1)),
    "attribute after a lock": instances(lambda x: Held(lock=threading.Lock(), x=x)),
    "attribute after a generator": instances(lambda x: Held(numbers=(i for i in "ab"), x=x)),
    "attribute after a module": instances(lambda x: Held(module=os, x=x)),
    "module": (Held(module=os), Held(module=sys)),
    "attribute in slots after a lock": instances(Slots),
    "attribute behind a large one": instances(lambda x: Held(a=list(range(LONG)), b=x)),
    "attribute of what contains itself": instances(cycle),
    "deep inside": instances(lambda x: nested(x, 45)),
    "item of a subclass of list": instances(lambda x: Labels([x])),
    "attribute of a subclass of list": instances(Labels.numbered),
    "named tuple": instances(lambda x: Pair(x, 0)),
    "deque": instances(lambda x: collections.deque([x])),
    "ordered dict": (collections.OrderedDict(a=1), collections.OrderedDict(a=2)),
    "default of a defaultdict": (collections.defaultdict(int), collections.defaultdict(list)),
    "enum": (Color.RED, Color.BLUE),
    "path": (pathlib.PurePosixPath("/a"), pathlib.PurePosixPath("/b")),
    "date": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "pattern": (re.compile("a"), re.compile("b")),
    "built-in function": (sorted, len),
    "variable of a function": instances(captures),
    "default of a function": instances(defaults),
    "default of a keyword": instances(keyword_defaults),
    "attribute of a function": instances(decorated),
    "constant of a function": (lambda x: x + 1, lambda x: x + 2),
    "constant of a tuple": (lambda x: x in (1, 2), lambda x: x in (1, 3)),
    "constant of an inner function": (lambda: lambda: 1, lambda: lambda: 2),
    "function that is called": (lambda x: str(x), lambda x: repr(x)),
    "argument of a partial function": (functools.partial(sorted, key=len), functools.partial(sorted, key=abs)),
    "object of a bound method": instances(bound),
    "function of a bound method": ([].append, [].remove),
    "namespace": instances(lambda x: types.SimpleNamespace(x=x)),
    "content of a file in memory": (io.BytesIO(b"a"), io.BytesIO(b"b")),
    "dataset inside of a dataset": instances(lambda x: SimpleDataset([x]).transform(abs)),
    "transform of a dataset": (SimpleDataset([1]).transform(abs), SimpleDataset([1]).transform(float)),
    "array of a dataset": instances(lambda x: ArrayDataset([0, 1], np.array([x, x]))),
    "step of a stream": instances(lambda x: IterableDataset([1, 2]).take(x)),
}


@pytest.mark.parametrize("kind", DIFFERENCES)
def test_a_difference_is_noticed(kind):
    first, second = DIFFERENCES[kind]
    assert fingerprint(first) != fingerprint(second)
    for wrap in (lambda value: [value], lambda value: Held(lock=threading.Lock(), value=value)):
        assert fingerprint(wrap(first)) != fingerprint(wrap(second))


def test_files_are_compared_by_their_path_and_mapped_memory_by_its_content(tmp_path):
    for name, content in {"a": b"0", "b": b"1", "c": b"0"}.items():
        (tmp_path / name).write_bytes(content)
    held = {name: opened(tmp_path / name) for name in "abc"}
    assert len({fingerprint(one.file) for one in held.values()}) == 3
    assert fingerprint(held["a"].memory) == fingerprint(held["c"].memory) != fingerprint(held["b"].memory)
    for one in held.values():
        one.file.close()
        one.memory.close()


def test_tensors():
    torch = load_or_skip("torch")
    tensors = [torch.tensor([1.0, x]) for x in (2, 3)]
    modules = [torch.nn.Linear(2, 1, bias=False) for _ in tensors]
    for module, tensor in zip(modules, tensors, strict=True):
        module.weight = torch.nn.Parameter(tensor[None])
    for first, second in (
        tensors,
        modules,
        [tensor.bfloat16() for tensor in tensors],
        [tensor.clone().requires_grad_() for tensor in tensors],
        [tensor.to_sparse() for tensor in tensors],
        (tensors[0].half(), tensors[0]),
    ):
        assert fingerprint(first) != fingerprint(second)
        assert fingerprint(first) == fingerprint(copy.deepcopy(first))


def test_the_part_that_differs_is_named():
    first = fingerprints(dataset=Held(lock=threading.Lock(), root="a", size=3), batchify_fn=None)
    second = fingerprints(dataset=Held(lock=threading.Lock(), root="b", size=3), batchify_fn=None)
    assert [name for name in first if first[name] != second[name]] == ["dataset.root"]
    assert fingerprints(dataset=[1], batchify_fn=None) != fingerprints(dataset=[2], batchify_fn=None)
    assert fingerprints(dataset=NoPickle(x=1)) != fingerprints(dataset=NoPickle(x=2))


def words(number):
    return {f"word {i}" for i in range(number)}


def constants(x):
    return x in {"one", "two", "three", "four"}


def everything():
    """Equal content, which each process builds."""
    text = "".join(["te", "xt"])
    rng = np.random.default_rng()
    yield from (text, [text, text], [text, "".join(["te", "xt"])], {text: text})
    yield from (words(100), frozenset(words(100)), words(20_000), {frozenset(words(5)), (1, 2)}, {1, 2.5, "a", None})
    yield Held(names=words(50), x=1)
    yield {word: len(word) for word in words(9)}, {(word, 1): [word] * 20 for word in words(9)}
    yield constants
    yield captures(words(9))
    yield rng, np.random.RandomState(), random.Random(), Held(rng=rng)
    yield threading.Lock(), threading.Event(), threading.Thread(), types.SimpleNamespace(lock=threading.Lock())
    yield (i for i in range(3))
    yield Held(module=json, stream=sys.stdout)
    yield WithoutCache(x=1, cache=os.getpid())
    yield cycle(1)
    yield nested(1, 3000)
    yield bound(1)
    yield functools.lru_cache(captures), functools.partial(captures, 1)
    yield np.zeros((3, 4), order="F"), np.zeros((4, 3)).T, np.zeros((6, 8))[::2, ::2]
    yield Color.RED, Pair(1, 2), Slots(1), NoPickle(x=1), Labels([1])
    yield lambda names=words(7): sorted(names)
    yield SimpleDataset(list(range(20_000))).transform(abs), IterableDataset(words).take(3)
    yield float("nan"), -0.0, 10**5000, "\ud800"


SCRIPT = f"""
import sys
sys.path[:0] = {sys.path!r}
import test_fingerprint as tests
print([tests.fingerprint(value) for value in tests.everything()], file=sys.stderr)
"""


def test_equal_contents_are_equal_in_other_processes(tmp_path):
    found = []
    for seed in ("1", "2"):
        with open(tmp_path / seed, "w") as output:
            child = subprocess.run(
                [sys.executable, "-c", SCRIPT],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=output,
                stderr=subprocess.PIPE,
                check=True,
            )
        found.append(json.loads(child.stderr))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([[1] * 30, [1] * 30], [[1] * 30] * 2),
        (Held(x=1, y=2), Held(y=2, x=1)),
        ({0, 8}, {8, 0}),  # they are iterated in this order
        (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
        (np.arange(2_000_000)[::2].reshape(1000, -1), np.arange(0, 2_000_000, 2).reshape(1000, -1)),
    ],
    ids=["same object", "order of attributes", "order of a set", "layout", "strides", "strides of a large array"],
)
def test_what_does_not_change_the_content_does_not_count(first, second):
    assert fingerprint(first) == fingerprint(second)
