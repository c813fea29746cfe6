"""The content of a batch, and the first difference between two batches.

Batches are compared by structure, types, dtypes, shapes and bytes; NaN is equal to NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import frameworks
from .errors import a_class
from .tree import children

Item = tuple[str, str, Any]  # a leaf or container of a batch: its path, what it is, its value (None for a container)
Items = list[Item]


def items_of(batch: Any) -> Items:
    """The containers and leaves of a batch in order; arrays as copies, since a loader may reuse their memory.

    Raises:
        TypeError: the batch contains an array that is sparse or quantized, has a gradient or is on a device.
    """
    return list(_items(batch, ""))


def difference(one: Items, other: Items) -> str:
    """Where `other` differs from the expected batch `one`, as the end of a sentence; "" if they are equal.

    Raises:
        TypeError: the batches contain objects that cannot be compared.
    """
    differs = next(filter(None, map(_difference, one, other)), "")
    return differs or (" has more or fewer leaves" if len(one) != len(other) else "")


def _items(value: Any, path: str) -> Iterator[Item]:
    kind = type(value)
    inner = children(value)
    plain = getattr(kind, "__eq__", None) is object.__eq__
    if inner is None and plain and hasattr(value, "__dict__"):  # e.g. MXNet's DataBatch
        inner = [(f".{name}", item) for name, item in vars(value).items()]
    if isinstance(value, np.ma.MaskedArray):
        inner = [(".data", value.data), (".mask", np.ma.getmaskarray(value))]
    elif isinstance(value, (np.ndarray, np.generic)) or frameworks.owner(kind) is not None:
        array = _to_numpy(value, path)
        yield path, f"{kind.__name__} of {array.dtype}, shape {array.shape}", array
        return
    if inner is None:
        yield path, kind.__name__, value
    else:
        yield path, f"{kind.__name__} of {[step for step, _ in inner]}", None
        for step, item in inner:
            yield from _items(item, path + step)


def _to_numpy(value: Any, path: str) -> NDArray[Any]:
    framework = frameworks.owner(type(value))
    array = value if framework is None else framework.to_numpy(value)
    if array is None:
        raise TypeError(
            f"at {path or 'the batch'}: {a_class(value)} that is sparse or quantized, has a gradient or is "
            "on a device cannot be compared; return dense arrays in host memory"
        )
    return np.array(array, subok=False)


def _difference(one: Item, other: Item) -> str:
    """The difference between the expected item `one` and `other`, that of the resumed run; "" if they are equal."""
    (path, kind, left), (other_path, other_kind, right) = one, other
    at = f" at {path}" if path else ""
    if (path, kind) != (other_path, other_kind):
        other_at = "" if path == other_path else f"{other_path or 'the batch'}: "
        return f"{at}: is {other_at}{other_kind}, expected {kind}"
    if isinstance(left, np.ndarray):
        wrong = np.flatnonzero(_unequal(left, right))
        if not wrong.size:
            return ""
        index = tuple(map(int, np.unravel_index(wrong[0], left.shape)))
        element = f"element {list(index)} of {left.size} ({wrong.size} differ)" if index else "its value"
        return f"{at}: {element} is {_text(right[index])}, expected {_text(left[index])}"
    try:
        equal = _equal(left, right)
    except Exception as error:  # such as the ValueError of arrays in an object that is no container
        raise TypeError(f"{path or 'the batch'}: two objects of {kind} cannot be compared ({error})") from error
    return "" if equal else f"{at}: is {right!r:.200}, expected {left!r:.200}"


def _equal(left: Any, right: Any) -> bool:
    """Whether two objects of the same class are equal, or neither is equal to itself, as NaN."""
    if left is right:
        return True
    if callable(equals := getattr(left, "equals", None)):  # of a table, whose elements `==` compares
        return bool(equals(right))
    return bool(left == right or (left != left and right != right))


def _text(element: Any) -> str:
    return repr(element.item()) if isinstance(element, (np.str_, np.bytes_)) else str(element)  # without np.str_(...)


def _unequal(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """For each element of two arrays of the same shape and dtype, flat: whether a bit differs and not both are NaN."""
    if left.dtype.hasobject:
        pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
        return np.array([bool(difference(items_of(one), items_of(other))) for one, other in pairs], bool)
    if not left.nbytes:
        return np.zeros(left.size, bool)
    bits = (array.reshape(-1, 1).view(np.uint8).reshape(array.size, -1) for array in (left, right))
    unequal: NDArray[np.bool_] = np.any(np.not_equal(*bits), axis=1)
    if left.dtype.kind in "fc":
        unequal[np.ravel(np.isnan(left) & np.isnan(right))] = False
    return unequal
