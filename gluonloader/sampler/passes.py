"""Passes: the iterators of one epoch, over single keys (`Pass`) and over batches of them (`BatchPass`).

A `Pass` slices an order, so it moves to any key without reading the keys before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..describe import counted
from ..errors import a_class, bad_argument, warn
from ..indices import Keys, as_list, is_int_array

Integers = NDArray[np.int64]

READ_AHEAD: Final = 4096  # keys that are read from an order at once


class UnknownLength(TypeError):
    """The length of an order is not known before the whole order was planned."""


def length_of(sampler: Any) -> int | None:
    """The length of the next pass of a sampler; None if only planning the whole pass would tell."""
    try:
        return len(sampler)
    except UnknownLength:
        return None


class Order(Protocol):
    """An order: `order[start:stop:step]` are the keys at these offsets, as a list, range or array.

    NOTE [changes]: to read an order does not change it. Some orders can be changed while a pass runs, for example by
    new weights. These have a method `change_from(offset)`: what the user has changed applies from this offset on, or
    from the first offset after it where it can; the keys before it stay as they were. It returns whether anything
    changed. Only the one who reads on (`Pass`) calls it, with the offset of the next key; for shares of an order, this
    is the first offset of a round, so that a change applies at the same place in all shares.

    An order that was changed, or is slow to compute from its start, has a method `saved(offset)`: what a position in it
    contains besides the identity of its sampler, as JSON.
    """

    def __getitem__(self, part: slice, /) -> Any: ...


class Computed:
    """An order whose parts a function computes: `order[part]` is `read(part)`.

    Args:
        change_from, saved: see `Order`; None for an order that has no such method.
    """

    def __init__(
        self,
        read: Callable[[slice], Any],
        change_from: Callable[[int], bool] | None = None,
        saved: Callable[[int], dict[str, Any]] | None = None,
    ) -> None:
        self._read = read
        self.change_from = _unchanged if change_from is None else change_from
        self.saved = _nothing_saved if saved is None else saved

    def __getitem__(self, part: slice) -> Any:
        return self._read(part)


def lazily(make: Callable[[], Order]) -> Computed:
    """An order that `make` returns when the first part of it is read."""
    made = cache(make)
    return Computed(lambda part: made()[part])


def _unchanged(offset: int) -> bool:
    return False


def _nothing_saved(offset: int) -> dict[str, Any]:
    return {}


def still(order: Order) -> Computed:
    """The same order for one who only looks at it: what the user has changed does not apply by that."""
    return Computed(order.__getitem__, saved=partial(saved_of, order))


def can_change(order: Order) -> bool:
    """Whether there is anything in any order that the user may change; see NOTE [changes]."""
    return getattr(order, "change_from", _unchanged) is not _unchanged


def change_from(order: Order, offset: int) -> bool:
    """Lets what the user has changed apply to any order from an offset on; see NOTE [changes]."""
    change: Callable[[int], bool] = getattr(order, "change_from", _unchanged)
    return change(offset)


def saved_of(order: Order, offset: int) -> dict[str, Any]:
    """What a position in any order contains besides the identity of its sampler; see `Order`."""
    saved: Callable[[int], dict[str, Any]] = getattr(order, "saved", _nothing_saved)
    return saved(offset)


class Pass(Iterator[Any]):
    """One pass over an order of `length` keys; if the length is None, the order ends where a slice is too short.

    It reads at least `read_ahead` keys from the order at a time; if that is 0, it reads only keys that are needed now.

    >>> numbers = Pass(range(10), 10)
    >>> numbers.cut(3), next(numbers)
    (array([0, 1, 2]), 3)
    >>> numbers.skip(4); numbers.cut(5)
    array([8, 9])
    """

    def __init__(self, order: Order, length: int | None, read_ahead: int = READ_AHEAD) -> None:
        self._order, self._read_ahead = order, read_ahead
        self._length = sys.maxsize if length is None else length
        self._keys: Keys = []  # keys read from `order`, from offset _start on; the first _used keys were returned
        self._listed: list[Any] | None = None  # _keys as a list, for __next__
        self._start, self._used = 0, 0

    def __next__(self) -> Any:
        if self._used == len(self._keys):
            self._read(1)
            if not len(self._keys):
                raise StopIteration
        if self._listed is None:
            self._listed = as_list(self._keys)
        self._used += 1
        return self._listed[self._used - 1]

    def cut(self, count: int) -> Keys:
        """The next `count` keys, or fewer at the end; an array if the order consists of ints."""
        if self._used + count > len(self._keys):
            self._read(count)
        keys = self._keys[self._used : self._used + count]
        self._used += len(keys)
        return keys

    def _read(self, count: int) -> None:
        """Reads more keys, so that `_keys` starts with the next key and contains `count` keys, if so many are left."""
        unused = self._keys[self._used :]
        start, first = self._start + self._used, self._start + len(self._keys)
        stop = min(max(start + count, first + self._read_ahead), self._length)
        more = unused[:0]
        if first < stop:
            change_from(self._order, first)
            more = as_keys(self._order[first:stop])
        self._keys = join_keys(unused, more) if len(unused) else more
        self._start, self._used, self._listed = start, 0, None

    def skip(self, count: int) -> None:
        """Skips `count` keys, or all that are left, without reading them."""
        if self._used + count <= len(self._keys):
            self._used += count
        else:
            self.seek(self._start + self._used + count)

    def first(self, count: int) -> list[Any]:
        """The first keys of the order, wherever the pass is."""
        return as_list(as_keys(self._order[0 : min(count, self._length)]))

    def seek(self, offset: int) -> None:
        """Continues with the key at `offset`; keys that were read ahead are read again."""
        self._start, self._used, self._keys, self._listed = min(offset, self._length), 0, [], None


class BatchPass(Iterator[list[Any]]):
    """One pass over a `BatchSampler`; `commit` stores the indices that it carries over into the next pass.

    Args:
        batches: the batch sampler.
        indices: one pass over its sampler.
        carried: indices that come first.
        size, last_batch: of this pass. A change to the batch sampler applies to its next pass, since a position counts
            batches of one size.
        start: number of indices to skip in that pass.

    Attributes:
        left_over: the indices that are too few for a batch, once all batches were drawn.
    """

    def __init__(
        self,
        batches: Any,
        indices: Iterator[Any],
        carried: Sequence[Any],
        size: int,
        last_batch: str,
        start: int = 0,
    ) -> None:
        self._batches, self._indices, self._start = batches, indices, start
        self._size, self._last_batch = size, last_batch
        if carried and len(carried) >= self._size:
            what = f"the iteration before has carried over {counted(len(carried), 'index', 'indices')}"
            raise bad_argument("batch_size", self._size, f"{what}, so it must be an int > {len(carried)}")
        skip(indices, start)
        self._carried_before = batches.carried  # before the end of this pass
        self._carried_in = list(carried)
        self._carried = self._carried_in  # the part of it that is not yet in a batch
        self.left_over: list[Any] = []
        self.drawn = 0  # number of the next batch in this pass

    def __next__(self) -> list[Any]:
        return as_list(self.cut())

    def cut(self) -> Keys:
        """The next batch; an array if the order of the sampler consists of ints.

        Raises:
            StopIteration: the pass has no more batches.
        """
        size, last_batch = self._size, self._last_batch
        batch = cut(self._indices, size - len(self._carried))
        if self._carried:
            batch, self._carried = self._carried + as_list(batch), []
        if len(batch) == size or (len(batch) and last_batch == "keep"):
            self.drawn += 1
            return batch
        if last_batch == "rollover":
            self.left_over += as_list(batch)
        raise StopIteration

    def skip(self, batches: int) -> None:
        """Skips batches, which the pass must still have; if the sampler has a `Pass`, their indices are not read."""
        if batches:
            skip(self._indices, batches * self._size - len(self._carried))
            self._carried = []
            self.drawn += batches

    def seek(self, number: int) -> None:
        """Continues with batch `number` of this pass; a sampler whose weights changed uses the new weights.

        Raises:
            TypeError: the pass of the sampler cannot go back.
        """
        if not isinstance(self._indices, Pass):
            raise TypeError(
                f"{a_class(self._batches.sampler)} cannot return to an earlier index; "
                "add state_dict() and load_state_dict() to it, or use a sampler of gluonloader"
            )
        self._indices.seek(self._start + max(number * self._size - len(self._carried_in), 0))
        self._carried, self.left_over, self.drawn = [] if number else self._carried_in, [], number

    def commit(self) -> None:
        """Ends a pass whose batches were all delivered: the indices that are left over start the next pass."""
        if self._batches.carried is not self._carried_before:
            warn_of_overlap(len(self._batches.carried))
        self._batches.carried = self.left_over  # also if they are none, since what came in is delivered


def warn_of_overlap(lost: int) -> None:
    """Warns if an iteration replaces samples that another one has carried over (rollover) while both were open."""
    if lost:
        warn(
            "last_batch='rollover': two iterations were open at the same time, and only one of them can carry over its "
            f"last samples, so the other has lost {counted(lost, 'sample', 'samples')}; start an iteration after the "
            "one before it has ended"
        )


def as_keys(part: Any) -> Keys:
    """Part of an order as a read-only array if it contains 64-bit ints, otherwise as a list."""
    if type(part) is range and (not part or -(2**63) <= min(part[0], part[-1]) <= max(part[0], part[-1]) < 2**63):
        return np.arange(part.start, part.stop, part.step, dtype=np.int64)
    if is_int_array(part) and np.can_cast(part.dtype, np.int64):
        keys: Integers = np.array(part, np.int64)  # a copy, because the user may write to the original
        keys.flags.writeable = False
        return keys
    return as_list(part)


def join_keys(first: Keys, second: Keys) -> Keys:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second])
    return as_list(first) + as_list(second)


def cut(iterator: Iterator[Any], count: int) -> Keys:
    """The next `count` keys of any iterator, or fewer at its end."""
    return iterator.cut(count) if isinstance(iterator, Pass) else list(islice(iterator, count))


def skip(iterator: Iterator[Any], count: int) -> bool:
    """Skips `count` items of any iterator; a pass does not read them, any other iterator draws them.

    Returns:
        Whether an iterator that draws them had so many.
    """
    if isinstance(iterator, (Pass, BatchPass)):
        iterator.skip(count)
        return True
    last = min(count, sys.maxsize) - 1  # the most that `islice` accepts; the iterator ends before
    return count < 1 or bool(list(islice(iterator, last, last + 1)))
