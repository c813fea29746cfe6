"""The arena hands out a slab's memory, array by array, to the batch that a worker is making."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .allocator import alignment_of
from .slab import Slab


class Arena:
    """A bump allocator over one slab, for one batch.

    Args:
        slab: where to allocate; it grows as needed.
        start: first free byte.
        allowance: size in bytes that the slab must not grow past. A batch that needs more continues in private memory,
            only to find out how much it needs.

    Attributes:
        needed: bytes of the slab that the batch takes so far, or would take past the allowance.
    """

    def __init__(self, slab: Slab, start: int, allowance: int) -> None:
        self._slab, self._allowance = slab, allowance
        self.needed = start
        # Arrays with an offset, by id. The dict holds the array, so its id is not reused.
        self._placed: dict[int, tuple[NDArray[Any], int]] = {}
        # The slab's mappings before it grew: arrays of the batch may still lie there. (memory, address, size)
        self._outgrown: list[tuple[Any, int, int]] = []
        self._to_copy: list[tuple[NDArray[Any], int]] = []

    @property
    def overflowed(self) -> bool:
        """Whether the batch is larger than the allowance, so that it cannot travel in this slab."""
        return self.needed > self._allowance

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns an uninitialised array in the slab; this is the allocator behind `gluonloader.empty`."""
        offset = self._reserve(math.prod(shape) * dtype.itemsize)
        array: NDArray[Any] = (
            np.empty(shape, dtype) if self.overflowed else np.ndarray(shape, dtype, self._slab.memory, offset)
        )
        self._placed[id(array)] = array, offset
        return array

    def place(self, array: NDArray[Any]) -> int:
        """Returns the offset of `array` in the slab.

        If the array lies elsewhere, `write` copies it there in C order. All copies wait for `write`, so that the slab
        grows once and not for each array.
        """
        placed = self._placed.get(id(array))
        if placed is not None:
            return placed[1]
        offset = self._offset_of_view(array)
        if offset is None:
            offset = self._count(array.nbytes)
            self._to_copy.append((array, offset))
        self._placed[id(array)] = array, offset
        return offset

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether the elements of `array` lie in the slab already, with any strides."""
        return self._offset_of_view(array) is not None

    def write(self, data: bytes | memoryview) -> int | None:
        """Copies `data`, and the arrays that wait for it, into the slab.

        Returns:
            The offset of `data`; None if the batch is larger than the allowance.
        """
        offset = self._reserve(len(data))
        if self.overflowed:
            return None
        for array, at in self._to_copy:
            copy: NDArray[Any] = np.ndarray(array.shape, array.dtype, self._slab.memory, at)
            copy[...] = array
        self._to_copy.clear()
        self._slab.memory[offset : offset + len(data)] = data  # type: ignore[assignment]
        return offset

    def _reserve(self, nbytes: int) -> int:
        """Counts `nbytes`, grows the slab unless that exceeds the allowance, and returns their offset."""
        offset, slab = self._count(nbytes), self._slab
        if slab.size < self.needed <= self._allowance:
            self._outgrown.append((slab.memory, slab.address, slab.size))
            slab.grow(self.needed, self._allowance)
        return offset

    def _count(self, nbytes: int) -> int:
        alignment = alignment_of(nbytes)
        offset = -(-self.needed // alignment) * alignment
        self.needed = offset + nbytes
        return offset

    def _offset_of_view(self, array: NDArray[Any]) -> int | None:
        """Returns the offset of a view of an array made by `empty` (a slice, a reshape, a tensor over it), or None."""
        if array.base is None:
            return None
        address: int = array.__array_interface__["data"][0]
        slab = self._slab
        for _, start, size in (*self._outgrown, (slab.memory, slab.address, slab.size)):
            if start <= address < start + size:
                return address - start
        return None
