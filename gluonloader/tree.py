"""Containers in samples and batches: tuples, named tuples, lists, mappings and dataclasses, nested in any way.

All other values are leaves. Every module that walks a sample or a batch does it with these functions. The type
variables of `Dataset[Sample]` and `DataLoader[Batch]` are here, too; where a type checker cannot know one, it is Any.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers know this module, also where it is not installed
    from typing_extensions import TypeVar

    Sample = TypeVar("Sample", covariant=True, default=Any)
    Batch = TypeVar("Batch", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sample = TypeVar("Sample", covariant=True)
    Batch = TypeVar("Batch", covariant=True)


def children(value: Any) -> list[tuple[str, Any]] | None:
    """The items of a container, each with its path as Python writes it; None if `value` is a leaf.

    >>> children({"x": 1, "y": 2}), children((5,)), children("text")
    ([("['x']", 1), ("['y']", 2)], [('[0]', 5)], None)
    """
    if isinstance(value, (tuple, list)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{name}", getattr(value, name)) for name in _field_names(value)]
    return None


def columns(containers: Sequence[Any]) -> list[tuple[str, Sequence[Any]]] | None:
    """The items of containers that all have the same paths: each path with its values in all the containers.

    None if the first container is a leaf.

    >>> columns([{"x": 1, "y": 2}, {"y": 4, "x": 3}])
    [("['x']", [1, 3]), ("['y']", [2, 4])]
    """
    first = containers[0]
    if isinstance(first, (tuple, list)):
        return [(f"[{i}]", column) for i, column in enumerate(zip(*containers, strict=True))]
    if isinstance(first, Mapping):
        return [(f"[{key!r}]", [container[key] for container in containers]) for key in first]
    if children(first) is None:
        return None
    names = [field.name for field in dataclasses.fields(first)]
    return [(f".{name}", [getattr(item, name) for item in containers]) for name in names]


def refill(container: Any, items: Any) -> Any:
    """A new container of the same type, with other items: as many as `children(container)` has, in the same order.

    >>> refill((1, 2), ["a", "b"]), refill({"x": 1}, [5])
    (('a', 'b'), {'x': 5})
    """
    kind = type(container)
    if isinstance(container, tuple):
        return kind._make(items) if hasattr(kind, "_make") else _made_from(kind, tuple(items))
    if kind is list:
        return list(items)
    mapping = isinstance(container, Mapping)
    if mapping and (kind is dict or not _has_own_copy(container)):
        return _made_from(kind, dict(zip(container, items, strict=True)))
    new = copy.copy(container)  # an OrderedDict or a defaultdict keeps its type, and a user's class its attributes
    attributes = getattr(new, "__dict__", {})
    for name in [name for name in attributes if isinstance(getattr(kind, name, None), cached_property)]:
        del attributes[name]  # computed from the old items
    if getattr(container, "__dict__", None) is container:  # the items are also attributes
        new.__dict__ = new
    indexed = mapping or isinstance(container, list)
    keys = container if mapping else range(len(container)) if indexed else _field_names(container)
    for key, item in zip(keys, items, strict=True):
        if indexed:
            new[key] = item  # not update(), which adds numbers in a Counter
        else:
            # The only way for a frozen dataclass: `replace` would call __post_init__, which may accept only samples.
            object.__setattr__(new, key, item)
    return new


def map_leaves(function: Callable[[Any, str], Any], value: Any, path: str = "") -> Any:
    """The same containers with `function(leaf, path)` in place of each leaf.

    >>> map_leaves(lambda leaf, path: f"{path}={leaf}", {"x": (1, 2)})
    {'x': ("['x'][0]=1", "['x'][1]=2")}
    """
    items = children(value)
    if items is None:
        return function(value, path)
    return refill(value, [map_leaves(function, item, path + step) for step, item in items])


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, in order.

    >>> list(leaves({"x": (1, 2)}))
    [("['x'][0]", 1), ("['x'][1]", 2)]
    """
    items = children(value)
    if items is None:
        yield path, value
        return
    for step, item in items:
        yield from leaves(item, path + step)


def _has_own_copy(mapping: Any) -> bool:
    """Whether a copy of a mapping can get other items. That of a user's class may share an inner dict with it."""
    return isinstance(mapping, dict) or (hasattr(mapping, "update") and hasattr(mapping, "__copy__"))


def _made_from(kind: Any, items: Any) -> Any:
    """A dict or tuple as the user's class of mappings or tuples, if that can be made from it; otherwise unchanged."""
    if kind is dict or kind is MappingProxyType:  # a proxy cannot be pickled
        return items
    try:
        return kind(items)
    except TypeError:
        return items


def _field_names(container: Any) -> list[str]:
    """The fields of a dataclass; those of `field(init=False)` may have no value yet."""
    return [field.name for field in dataclasses.fields(container) if hasattr(container, field.name)]
