"""`assert_resumes_exactly`: checks that a resumed loader produces exactly the remaining batches.

One loader reads all batches. For each save point, a second loader reads up to that point and saves its position as
JSON. Then a third loader loads the position and reads the rest, which must equal what the first loader read there.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np

from .comparing import Items, difference, items_of
from .errors import bad_argument

__all__ = ["assert_resumes_exactly"]

_MOST_POINTS: Final = 20  # save points unless the user passes `points`
_MOST_BYTES: Final = 10_000  # of a state; a larger state probably contains samples

Epoch = list[Items]
SavePoint = tuple[int, int]  # number of an epoch, and how many of its batches were delivered


def assert_resumes_exactly(
    make_loader: Callable[[], Any], *, epochs: int = 1, points: Iterable[int] | None = None
) -> None:
    """Checks that a loader can be stopped after any batch and resumed, so that all later batches are bitwise identical.

    Batches are compared by structure, types, dtypes, shapes and bytes; NaN is equal to NaN. At the end of an epoch the
    position is saved twice: after the last batch, and after the iterator has ended.

    Args:
        make_loader: a function that returns a new loader, with the same arguments at each call: a `DataLoader`, a
            `Bridge`, or any iterable object with `state_dict` and `load_state_dict`. After use, `close` of the loader
            is called if it exists.
        epochs: number of epochs with save points; one more epoch is read for comparison.
        points: when to save: numbers of batches delivered before, counted over all epochs. By default, up to 20 save
            points are evenly spread from the first batch to the last.

    Raises:
        AssertionError: two batches differ; the text names the save point, the batch, the path in it and both values.
        ValueError: an argument is wrong.

    >>> from gluonloader import DataLoader
    >>> assert_resumes_exactly(lambda: DataLoader(range(10), batch_size=3, shuffle=True, seed=1))
    """
    if not isinstance(epochs, int) or epochs < 1:
        raise bad_argument("epochs", epochs, "must be an int >= 1")
    if not callable(make_loader):
        raise bad_argument("make_loader", make_loader, "pass a function that makes a loader: lambda: DataLoader(...)")
    loaders = _Loaders(make_loader)
    with loaders.fresh() as loader:
        whole = [_read(loader) for _ in range(epochs + 1)]
    for number, epoch in enumerate(whole):
        if not epoch:
            right = f"epoch {number} of its loader has no batches to compare; use a loader with batches"
            raise bad_argument("make_loader", make_loader, right)
    with loaders.fresh() as loader:
        for number, epoch in enumerate(whole[:epochs]):
            _compare("two fresh loaders differ, before any resume", number, epoch, _read(loader))
    total = sum(map(len, whole[:epochs]))
    for save_point in _save_points(whole[:epochs], _checked_points(points, total)):
        _check(loaders, whole, save_point)


class _Loaders:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._first: Any = None

    @contextmanager
    def fresh(self) -> Iterator[Any]:
        loader = self._make()
        missing = [name for name in ("__iter__", "state_dict", "load_state_dict") if not hasattr(loader, name)]
        if missing:
            raise bad_argument("make_loader", self._make, f"it returned {type(loader)}, which has no {missing[0]}")
        if loader is self._first:
            raise bad_argument("make_loader", self._make, "it returned the same loader twice; make a new one each time")
        self._first = loader if self._first is None else self._first
        with ExitStack() as stack:
            if hasattr(loader, "__enter__"):
                stack.enter_context(loader)
            elif hasattr(loader, "close"):
                stack.callback(loader.close)
            yield loader


def _checked_points(points: Iterable[int] | None, total: int) -> list[int]:
    if points is None:
        return sorted(set(np.linspace(0, total, min(total + 1, _MOST_POINTS)).astype(int).tolist()))
    points = list(points)
    for point in points:
        if not isinstance(point, int) or not 0 <= point <= total:
            raise bad_argument("points", point, f"must be an int from 0 to {total}, the number of batches")
    return points


def _save_points(epochs: list[Epoch], points: list[int]) -> Iterator[SavePoint]:
    """The save points for these numbers of batches; an epoch's end has two, before and after its iterator has ended."""
    for point in points:
        before = 0
        for number, epoch in enumerate(epochs):
            if 0 <= point - before <= len(epoch):
                yield number, point - before
            before += len(epoch)
        if point == before:
            yield len(epochs), 0


def _check(loaders: _Loaders, whole: list[Epoch], save_point: SavePoint) -> None:
    number, batches = save_point
    with loaders.fresh() as loader:
        for _ in range(number):
            deque(loader, maxlen=0)
        iterator = iter(loader) if batches else iter(())
        for _ in range(batches):
            next(iterator)
        state = _through_json(loader.state_dict(), save_point)
        del iterator
    where = f"resumed after {batches} batches of epoch {number}"
    with loaders.fresh() as loader:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "resuming", RuntimeWarning)  # that batches are read again is expected
            loader.load_state_dict(state)
        found = _read(loader)
        if batches == len(whole[number]) and number + 1 < len(whole):
            # The next iteration is either empty, to end this epoch, or it is the next epoch.
            found = found or _read(loader)
            number, batches = number + 1, 0
        _compare(where, number, whole[number][batches:], found, batches)
        for later in range(number + 1, len(whole) - 1):
            _compare(where, later, whole[later], _read(loader))


def _through_json(state: Any, save_point: SavePoint) -> Any:
    what = f"state_dict() after {save_point[1]} batches of epoch {save_point[0]}"
    try:
        text = json.dumps(state)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} is not JSON: {error}") from None
    if len(text) >= _MOST_BYTES:
        raise AssertionError(f"{what} is {len(text):,} bytes of JSON; it must be less than {_MOST_BYTES:,}")
    return json.loads(text)


def _compare(where: str, number: int, expected: Epoch, found: Epoch, start: int = 0) -> None:
    """Raises for the first difference between the batches of an epoch from batch `start` on."""
    for batch, (one, other) in enumerate(zip(expected, found, strict=False), start):
        if differs := difference(one, other):
            raise AssertionError(f"{where}: batch {batch} of epoch {number}{differs}")
    if len(found) != len(expected):
        raise AssertionError(
            f"{where}: epoch {number} has {len(found)} batches from batch {start} on, expected {len(expected)}"
        )


def _read(batches: Iterable[Any]) -> Epoch:
    return list(map(items_of, batches))
