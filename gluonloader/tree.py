"""Containers inside a sample or a batch: tuples, named tuples, lists, mappings and dataclasses, nested as they come."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["children", "leaves", "map_leaves", "refill"]


def children(value: Any) -> list[tuple[str, Any]] | None:
    """The items of a container, each with its path as Python would write it; None if `value` is a leaf.

    >>> children({"x": 1, "y": 2}), children((5,)), children("text")
    ([("['x']", 1), ("['y']", 2)], [('[0]', 5)], None)
    """
    if isinstance(value, (tuple, list)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def refill(container: Any, items: Any) -> Any:
    """A container of the same kind as `container`, with other items.

    Args:
        container: a tuple, named tuple, list, mapping or dataclass; it is not changed.
        items: as many as `children(container)` gives, in that order.

    >>> refill((1, 2), ["a", "b"]), refill({"x": 1}, [5])
    (('a', 'b'), {'x': 5})
    """
    kind = type(container)
    if isinstance(container, tuple):
        return kind._make(items) if hasattr(kind, "_make") else kind(items)
    if isinstance(container, list):
        return kind(items)
    mapping = isinstance(container, Mapping)
    if mapping and (kind is dict or not hasattr(container, "update")):
        return dict(zip(container, items, strict=True))
    new = copy.copy(container)  # an OrderedDict or a defaultdict keeps its type
    for key, item in zip(container if mapping else _field_names(container), items, strict=True):
        if mapping:
            new[key] = item  # not update(), which adds in a Counter
        else:
            # This bypasses the __setattr__ of a frozen dataclass, and a __post_init__ that checks single samples.
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


def _field_names(container: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(container)]
