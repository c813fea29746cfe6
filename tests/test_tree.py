"""Containers: their items and paths, copies with other items, and their leaves."""

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import MutableMapping
from functools import cached_property
from types import MappingProxyType

import pytest
from parity import Frozen, FrozenPair, NotedList

from gluonloader import DataLoader
from gluonloader.batchify import AsList
from gluonloader.tree import children, columns, leaves, map_leaves, refill

Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Box:
    low: int
    high: int

    def __post_init__(self):
        assert isinstance(self.low, int), "not called for a refilled box"


CONTAINERS = [
    ((1, 2), ["[0]", "[1]"]),
    ([1, 2], ["[0]", "[1]"]),
    (Point(1, 2), ["[0]", "[1]"]),
    ({"a": 1, 3: 2}, ["['a']", "[3]"]),
    (OrderedDict(a=1, b=2), ["['a']", "['b']"]),
    (MappingProxyType({"a": 1, "b": 2}), ["['a']", "['b']"]),
    (Box(1, 2), [".low", ".high"]),
]


@pytest.mark.parametrize(("container", "paths"), CONTAINERS, ids=lambda value: type(value).__name__)
def test_items_have_their_paths_and_a_container_can_be_refilled(container, paths):
    assert children(container) == [*zip(paths, [1, 2], strict=True)] == list(leaves(container))
    assert [(path, list(values)) for path, values in columns([container, container])] == [
        (path, [item, item]) for path, item in children(container)
    ]
    other = refill(container, ["x", "y"])
    assert [item for _, item in children(other)] == ["x", "y"]
    assert type(other) is (dict if isinstance(container, MappingProxyType) else type(container))
    assert [item for _, item in children(container)] == [1, 2], "it is not changed"
    assert refill(container, [item for _, item in children(container)]) == container


class TupleOfInts(tuple):
    """Accepts only ints, as `torch.Size` does."""

    def __new__(cls, items):
        if not all(isinstance(item, int) for item in items):
            raise TypeError("the items must be ints")
        return super().__new__(cls, items)


def test_containers_of_the_user_keep_their_class_and_attributes():
    row = refill(NotedList([1, 2], "note"), ["x", "y"])
    assert (type(row), list(row), row.note) == (NotedList, ["x", "y"], "note")
    frozen = refill(Frozen({"a": 1}), ["x"])
    assert (type(frozen), dict(frozen)) == (Frozen, {"a": "x"})
    assert refill(FrozenPair(1, 2), ["x", "y"]) == {"a": "x", "b": "y"}
    assert type(refill(TupleOfInts([1, 2]), ["x", "y"])) is tuple


class Inner(Frozen, MutableMapping):
    """Keeps its items in a dict, as many classes do that have no method to copy them."""

    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]


class WithKeywords(Inner):
    def __init__(self, **items):
        super().__init__(items)


@pytest.mark.parametrize("container", [Inner({"a": 1}), WithKeywords(a=1), UserDict(a=1)])
def test_a_sample_is_not_changed_by_the_batch(container):
    kind = dict if type(container) is WithKeywords else type(container)  # which cannot be made from a dict
    other = refill(container, ["x"])
    assert (type(other), dict(other), dict(container)) == (kind, {"a": "x"}, {"a": 1})


class Attributes(dict):
    """Its items are its attributes, too."""

    def __init__(self, items):
        super().__init__(items)
        self.__dict__ = self


@dataclasses.dataclass
class Sized:
    values: list

    @cached_property
    def total(self):
        return sum(self.values)


def test_attributes_that_follow_from_the_items_are_those_of_the_batch():
    batch = refill(Attributes({"a": 1}), ["x"])
    assert (batch.a, batch["a"]) == ("x", "x")
    sample = Sized([1, 2])
    assert (sample.total, refill(sample, [[3, 4]]).total, sample.total) == (3, 7, 3)


@dataclasses.dataclass
class WithCache:
    x: int
    cache: list = dataclasses.field(init=False, repr=False)


def test_a_field_of_a_dataclass_without_a_value_is_no_item():
    assert children(WithCache(1)) == [(".x", 1)]
    assert map_leaves(lambda leaf, path: leaf + 1, WithCache(1)).x == 2
    with DataLoader([WithCache(i) for i in range(4)], 2, batchify_fn=AsList()) as loader:
        assert [[sample.x for sample in batch] for batch in loader] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("leaf", ["text", b"bytes", 5, None, {1, 2}, range(3), Box, Point])
def test_everything_else_is_a_leaf(leaf):
    assert children(leaf) is None
    assert columns([leaf, leaf]) is None
    assert list(leaves(leaf)) == [("", leaf)]
    assert map_leaves(lambda leaf, path: (path, leaf), leaf) == ("", leaf)


def test_columns_take_values_by_key_and_not_by_order():
    assert columns([{"x": 1, "y": 2}, {"y": 4, "x": 3}]) == [("['x']", [1, 3]), ("['y']", [2, 4])]


def test_containers_nest():
    value = {"a": [1, (2, Box(3, 4))], "b": ()}
    assert [path for path, _ in leaves(value)] == ["['a'][0]", "['a'][1][0]", "['a'][1][1].low", "['a'][1][1].high"]
    assert map_leaves(lambda leaf, path: leaf + 1, value) == {"a": [2, (3, Box(4, 5))], "b": ()}
