"""`assert_resumes_exactly`: whether a pipeline of yours goes on, from a saved position, as if nothing had been.

One loader reads all. For each save point a fresh one reads as far as that and is saved, as JSON; another fresh one
loads the state and reads the rest, which is compared with what the first one gave.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import frameworks
from .errors import bad_argument

__all__ = ["assert_resumes_exactly"]

_MOST_POINTS: Final = 20
_MOST_BYTES: Final = 10_000

# A batch, taken apart: where a leaf or container lies in it, what it is, and its value, if it is a leaf.
Leaf = tuple[str, str, Any]
Epoch = list[list[Leaf]]
Place = tuple[int, int]  # number of an epoch; batches of it that were delivered


def assert_resumes_exactly(
    make_loader: Callable[[], Any], *, epochs: int = 1, points: Iterable[int] | None = None
) -> None:
    """Checks that a loader can be stopped anywhere and resumed, with every later batch the same bit for bit.

    Batches are compared by structure, types, dtypes, shapes and bytes; NaN is equal to NaN. After the last batch the
    loader is saved before it has said that the epoch ends, and after.

    Args:
        make_loader: makes a loader from scratch, the same one at each call: a `DataLoader`, a `Bridge`, or anything
            that can be iterated and has `state_dict` and `load_state_dict`. It is closed after use, if it can be.
        epochs: how many epochs are read; one more is read for comparison.
        points: after how many batches to save, counted over all epochs; by default after each, or 20 of them evenly
            spread, with the first and the last.

    Raises:
        AssertionError: something differs; the text names the save point, the batch, the place in it and both values.
        ValueError: an argument is wrong.

    >>> from gluonloader import DataLoader
    >>> assert_resumes_exactly(lambda: DataLoader(range(10), batch_size=3, shuffle=True, seed=1))
    """
    if not isinstance(epochs, int) or epochs < 1:
        raise bad_argument("epochs", epochs, "give an int >= 1")
    if not callable(make_loader):
        raise bad_argument("make_loader", make_loader, "give a function that makes it, lambda: DataLoader(...)")
    makers = _Loaders(make_loader)
    with makers.fresh() as loader:
        whole = [_read(loader) for _ in range(epochs + 1)]
    for number, epoch in enumerate(whole):
        if not epoch:
            right = f"epoch {number} of its loader has no batches, so nothing can be compared"
            raise bad_argument("make_loader", make_loader, right)
    with makers.fresh() as loader:
        for number, epoch in enumerate(whole[:epochs]):
            _compare("two fresh loaders differ, before any resume", number, epoch, _read(loader))
    total = sum(map(len, whole[:epochs]))
    for place in _places(whole[:epochs], _checked_points(points, total)):
        _check(makers, whole, place)


class _Loaders:
    """Fresh loaders, each closed after use."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._first: Any = None

    @contextmanager
    def fresh(self) -> Iterator[Any]:
        loader = self._make()
        missing = [name for name in ("__iter__", "state_dict", "load_state_dict") if not hasattr(loader, name)]
        if missing:
            raise bad_argument("make_loader", self._make, f"it gave {type(loader)}, which has no {missing[0]}")
        if loader is self._first:
            raise bad_argument("make_loader", self._make, "it gave the same loader twice; let it make a new one")
        self._first = loader if self._first is None else self._first
        if hasattr(loader, "__enter__"):
            with loader:
                yield loader
            return
        try:
            yield loader
        finally:
            getattr(loader, "close", lambda: None)()


def _checked_points(points: Iterable[int] | None, total: int) -> list[int]:
    if points is None:
        return sorted(set(np.linspace(0, total, min(total + 1, _MOST_POINTS)).astype(int).tolist()))
    points = list(points)
    for point in points:
        if not isinstance(point, int) or not 0 <= point <= total:
            raise bad_argument("points", point, f"give ints from 0 to the {total} batches that there are")
    return points


def _places(epochs: list[Epoch], points: list[int]) -> Iterator[Place]:
    """A point where an epoch ends is two places: before the loader has said so, and after."""
    for point in points:
        before = 0
        for number, epoch in enumerate(epochs):
            if 0 <= point - before <= len(epoch):
                yield number, point - before
            before += len(epoch)
        if point == before:
            yield len(epochs), 0


def _check(makers: _Loaders, whole: list[Epoch], place: Place) -> None:
    number, batches = place
    with makers.fresh() as loader:
        for _ in range(number):
            deque(loader, maxlen=0)
        iterator = iter(loader) if batches else iter(())
        for _ in range(batches):
            next(iterator)
        state = _through_json(loader.state_dict(), place)
        del iterator
    where = f"resumed after {batches} batches of epoch {number}"
    with makers.fresh() as loader:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "resuming", RuntimeWarning)  # what it costs is known here
            loader.load_state_dict(state)
        found = _read(loader)
        if batches == len(whole[number]) and number + 1 < len(whole):  # what comes is the end, or the next epoch
            found = found or _read(loader)
            number, batches = number + 1, 0
        _compare(where, number, whole[number][batches:], found, batches)
        for later in range(number + 1, len(whole) - 1):
            _compare(where, later, whole[later], _read(loader))


def _through_json(state: Any, place: Place) -> Any:
    what = f"state_dict() after {place[1]} batches of epoch {place[0]}"
    try:
        text = json.dumps(state)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} is not JSON: {error}") from None
    if len(text) >= _MOST_BYTES:
        raise AssertionError(f"{what} is {len(text):,} bytes of JSON, not under {_MOST_BYTES:,}")
    return json.loads(text)


def _compare(where: str, number: int, expected: Epoch, found: Epoch, start: int = 0) -> None:
    """Raises for the first difference between batches, the first of which is batch `start` of its epoch."""
    for batch, (one, other) in enumerate(zip(expected, found, strict=False), start):
        difference = next(filter(None, map(_difference, one, other)), None)
        if difference or len(one) != len(other):
            raise AssertionError(f"{where}: batch {batch} of epoch {number}{difference or ' has more or fewer parts'}")
    if len(found) != len(expected):
        raise AssertionError(
            f"{where}: epoch {number} has {len(found)} batches from batch {start} on; uninterrupted, {len(expected)}"
        )


# -- batches -----------------------------------------------------------------------------------------------------------


def _read(batches: Iterable[Any]) -> Epoch:
    return [list(_leaves(batch, "")) for batch in batches]


def _leaves(value: Any, path: str) -> Iterator[Leaf]:
    """The parts of a batch, in their order; arrays as copies, so that nothing changes them any more."""
    kind = type(value)
    parts = _parts(value)
    if isinstance(value, (np.ndarray, np.generic)) or frameworks.owner(kind) is not None:
        array = _to_numpy(value, path)
        yield path, f"{kind.__name__} of {array.dtype}, shape {array.shape}", array
    elif parts is None:
        yield path, kind.__name__, value
    else:
        yield path, f"{kind.__name__} of {list(parts)}", None
        for name, part in parts.items():
            yield from _leaves(part, path + name)


def _parts(value: Any) -> dict[str, Any] | None:
    """What a container holds, by what is to be written behind it to get there; None for anything else."""
    if isinstance(value, (tuple, list)):
        return {f"[{i}]": item for i, item in enumerate(value)}
    if isinstance(value, Mapping):
        return {f"[{key!r}]": item for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f".{field.name}": getattr(value, field.name) for field in dataclasses.fields(value)}
    plain = getattr(type(value), "__eq__", None) is object.__eq__  # MXNet's DataBatch, for one
    if plain and hasattr(value, "__dict__"):
        return {f".{name}": item for name, item in vars(value).items()}
    return None


def _to_numpy(value: Any, path: str) -> NDArray[Any]:
    framework = frameworks.owner(type(value))
    array = value if framework is None else framework.to_numpy(value)
    if array is None:
        raise TypeError(
            f"at {path or 'the batch'}: a {type(value).__qualname__} that is sparse, has a gradient or lies on a "
            "device cannot be compared; have make_loader give dense ones in host memory"
        )
    return np.array(array, subok=False)


def _difference(one: Leaf, other: Leaf) -> str:
    """What is wrong with a part, the second of the resumed run; "" for nothing."""
    (path, kind, left), (other_path, other_kind, right) = one, other
    at = f" at {path}" if path else ""
    if (path, kind) != (other_path, other_kind):
        place = "" if path == other_path else f"{other_path or 'the batch'}: "
        return f"{at}: is {place}{other_kind}; uninterrupted, {kind}"
    if isinstance(left, np.ndarray):
        wrong = np.flatnonzero(_unequal(left, right))
        if not wrong.size:
            return ""
        index = tuple(map(int, np.unravel_index(wrong[0], left.shape)))
        element = f"element {list(index)} of {left.size} ({wrong.size} differ)" if index else "its value"
        return f"{at}: {element} is {_text(right[index])}; uninterrupted, {_text(left[index])}"
    if left is right or left == right or (left != left and right != right):  # NaN is not itself
        return ""
    return f"{at}: is {right!r:.200}; uninterrupted, {left!r:.200}"


def _text(element: Any) -> str:
    return repr(element.item()) if isinstance(element, (np.str_, np.bytes_)) else str(element)  # without NumPy's name


def _unequal(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements of two arrays of one shape and dtype differ, flat: in any bit, unless both are NaN."""
    if left.dtype.hasobject:
        pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
        return np.array([one is not other and one != other for one, other in pairs], bool)
    if not left.nbytes:
        return np.zeros(left.size, bool)
    bits = (array.reshape(-1, 1).view(np.uint8).reshape(array.size, -1) for array in (left, right))
    unequal: NDArray[np.bool_] = np.any(np.not_equal(*bits), axis=1)
    if left.dtype.kind in "fc":
        unequal[np.ravel(np.isnan(left) & np.isnan(right))] = False
    return unequal
