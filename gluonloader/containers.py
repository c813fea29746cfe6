"""What samples come in and batches keep: tuples, lists, mappings and dataclasses, with other contents."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

__all__ = ["refill"]


def refill(container: Any, contents: Any) -> Any:
    """A container of the same kind as `container`.

    Args:
        container: a tuple, named tuple, list, mapping or dataclass; it stays as it is.
        contents: a list of the items of a tuple or list; a dict by key of a mapping, by field of a dataclass.

    >>> refill((1, 2), ["a", "b"]), refill({"x": 1}, {"x": 5})
    (('a', 'b'), {'x': 5})
    """
    kind = type(container)
    if isinstance(container, tuple):
        return kind._make(contents) if hasattr(kind, "_make") else kind(contents)
    if isinstance(container, list):
        return kind(contents)
    mapping = isinstance(container, Mapping)
    if mapping and (kind is dict or not hasattr(container, "update")):
        return contents
    new = copy.copy(container)  # an OrderedDict, a defaultdict ... stays one
    for key, item in contents.items():
        if mapping:
            new[key] = item  # not update(), which adds in a Counter
        else:
            # Past a frozen dataclass's own __setattr__, and past a __post_init__ that checks single samples.
            object.__setattr__(new, key, item)
    return new
