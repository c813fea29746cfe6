"""`RepeatedBatches`: a perfect loader, which shows how fast a program is if it never waits for data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import count, cycle, islice
from typing import Any, Generic

import numpy as np

from .checks import check_int
from .describe import call, describe, short_repr
from .frameworks.find import owner
from .locks import Lock
from .memory import empty
from .memory.buffers import BatchMemory, BufferPool
from .tree import Batch, map_leaves


class RepeatedBatches(Generic[Batch]):
    """Yields copies of the first batches of a loader again and again, so that a program runs as with a perfect loader.

    Compare the speed of your program with both loaders: the difference is what a faster loader can gain. The batches
    are read at the first use. All other attributes are those of `loader`, so that `set_epoch` and `batch_size` still
    work; `stats()` describes `loader`, not this object.

    A copy takes about 0.1 ms for each MB, in the thread that asks for the batch. So the program may write into the
    batches. The arrays of a copy lie in ordinary memory; copies of tensors in page-locked memory are page-locked, too.

    Args:
        loader: any iterable of batches, such as a `DataLoader` of gluonloader or torch. If it has a length, an epoch
            ends after that many batches; otherwise it never ends.
        batches: how many batches are kept in memory; fewer if `loader` has fewer.

    Raises:
        ValueError: `batches` is less than 1; or, at the first use, `loader` yields no batch.

    >>> loader = RepeatedBatches([[1, 2], [3, 4], [5]], batches=2)
    >>> len(loader), list(loader)
    (3, [[1, 2], [3, 4], [1, 2]])
    """

    def __init__(self, loader: Iterable[Batch], batches: int = 4) -> None:
        self._loader, self._count = loader, check_int("batches", batches, 1)
        self._cached: list[Batch] = []
        self._lock = Lock()  # while the batches are read
        self._buffers = BufferPool(window=1)

    def __reduce__(self) -> Any:
        return type(self), (self._loader, self._count)  # the copy reads its batches at its first use

    def __len__(self) -> int:
        """The length of the loader; TypeError if it has none."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        """Starts an epoch, which begins with the first batch."""
        memory = BatchMemory(self._buffers)
        for _, batch in zip(self._numbers(), cycle(self._read()), strict=False):
            with memory:
                batch_again = copied(batch)
            yield batch_again
            del batch_again  # so that its memory is free if the program has dropped the batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also `_loader`, which is missing while this object is unpickled
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return getattr(self._loader, name)

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._loader), f"batches={self._count}")

    def _numbers(self) -> Iterable[int]:
        try:
            return range(len(self))
        except TypeError:
            return count()

    def _read(self) -> list[Batch]:
        with self._lock:
            if not self._cached:
                self._cached = [copied(batch) for batch in islice(self._loader, self._count)]
            if not self._cached:
                raise ValueError(f"{describe(self._loader)} yields no batch, so there is nothing to repeat")
            return self._cached


def copied(batch: Any) -> Any:
    """A copy of a batch that shares no memory with it; its NumPy arrays lie in memory of `gluonloader.empty`."""
    return map_leaves(lambda leaf, path: _copied_leaf(leaf), batch)


def _copied_leaf(leaf: Any) -> Any:
    framework = owner(type(leaf))
    if framework is not None:
        values = framework.to_numpy(leaf)
        if values is None:  # on a device, sparse or with a gradient
            return copy.deepcopy(leaf)
        new = framework.from_numpy(_copied_array(values))
        return framework.pin(new, 0) if _is_pinned(leaf) else new
    return _copied_array(leaf) if type(leaf) is np.ndarray else copy.deepcopy(leaf)


def _copied_array(array: Any) -> Any:
    if not array.flags.c_contiguous or array.dtype.hasobject:
        return copy.deepcopy(array)
    new = empty(array.shape, array.dtype)
    np.copyto(new, array)
    return new


def _is_pinned(array: Any) -> bool:
    is_pinned = getattr(array, "is_pinned", None)  # torch
    return is_pinned is not None and bool(is_pinned())
