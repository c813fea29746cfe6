"""The arena: hands out a slab's memory, piece by piece, to the batch that is being made in a worker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .slab import Slab, align, alignment_of

__all__ = ["Arena"]


@dataclass(frozen=True, slots=True)
class _Mapping:
    """The slab as it was mapped before it grew; arrays of the batch may look into it still."""

    memory: Any
    address: int
    size: int


class Arena:
    """A bump allocator over one slab, for one batch.

    Args:
        slab: where to allocate; it grows as needed.
        start: first free byte.
        allowance: size in bytes past which the slab must not grow. What does not fit then is made in private memory;
            `needed` says how much would have been enough.
    """

    def __init__(self, slab: Slab, start: int, allowance: int) -> None:
        self._slab, self._allowance = slab, allowance
        self.needed = start
        # By id, with the array itself, which keeps the id its own; no offset for what did not fit.
        self._placed: dict[int, tuple[NDArray[Any], int]] = {}
        self._outgrown: list[_Mapping] = []
        self._later: list[tuple[NDArray[Any], int]] = []  # to be copied to their offsets

    @property
    def overflowed(self) -> bool:
        """Whether the batch is larger than the allowance, so that it cannot travel in this slab."""
        return self.needed > self._allowance

    def reserve(self, nbytes: int) -> int:
        """Takes `nbytes`; returns their offset. Past the allowance it is only counted: nothing may be written there."""
        offset = self._take(nbytes)
        if self.needed > self._slab.size and not self.overflowed:
            self._outgrown.append(_Mapping(self._slab.memory, self._slab.address, self._slab.size))
            self._slab.grow(self.needed, self._allowance)
        return offset

    def _take(self, nbytes: int) -> int:
        offset = align(self.needed, alignment_of(nbytes))
        self.needed = offset + nbytes
        return offset

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An uninitialised array in the slab; the allocator behind `gluonloader.empty`."""
        offset = self.reserve(math.prod(shape) * dtype.itemsize)
        array: NDArray[Any] = (
            np.empty(shape, dtype) if self.overflowed else np.ndarray(shape, dtype, self._slab.memory, offset)
        )
        self._placed[id(array)] = array, offset
        return array

    def place(self, array: NDArray[Any]) -> int:
        """The offset of `array` in the slab; unless it lies there already it is copied (in C order), before `write`.

        Then the slab has to grow once, however many arrays there are.
        """
        placed = self._placed.get(id(array))
        if placed is not None:
            return placed[1]
        offset = self._offset_of_view(array)
        if offset is None:
            offset = self._take(array.nbytes)
            self._later.append((array, offset))
        self._placed[id(array)] = array, offset
        return offset

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether `array` lies in the slab as it is, with whatever strides."""
        return self._offset_of_view(array) is not None

    def _offset_of_view(self, array: NDArray[Any]) -> int | None:
        """The offset of an array that looks at one made by `empty`: a slice, a reshape, a tensor over it."""
        if array.base is None:
            return None
        address: int = array.__array_interface__["data"][0]
        now = _Mapping(self._slab.memory, self._slab.address, self._slab.size)
        for mapping in (*self._outgrown, now):
            if mapping.address <= address < mapping.address + mapping.size:
                return address - mapping.address
        return None

    def write(self, data: bytes | memoryview) -> int | None:
        """Copies bytes into the slab; returns their offset, or None past the allowance."""
        offset = self.reserve(len(data))
        if self.overflowed:
            return None
        for array, at in self._later:
            copy: NDArray[Any] = np.ndarray(array.shape, array.dtype, self._slab.memory, at)
            copy[...] = array
        self._later.clear()
        self._slab.memory[offset : offset + len(data)] = data  # type: ignore[assignment]
        return offset
