"""Where the blocks of an object start and stop, so that each sample lies in one block."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..indices import Indices
from ..messages import message

DEFAULT: Final = 4 << 20  # bytes of a block


@message(frozen=True, slots=True, eq=False)
class Bounds:
    """The blocks of an object, in its order; they may overlap, if samples do.

    Attributes:
        starts, stops: the first byte of each, and the one after its last.
        counts: the number of samples in each; empty if they are not known.
    """

    starts: Indices
    stops: Indices
    counts: list[int]

    @staticmethod
    def equal(size: int, block: int) -> Bounds:
        """Blocks of equal size, but for the last one."""
        starts = np.arange(0, max(size, 1), block)
        return Bounds(starts, np.minimum(starts + block, size), [])

    @staticmethod
    def of(starts: Indices, stops: Indices, block: int = DEFAULT) -> Bounds:
        """Blocks of whole samples: a block starts with the first sample after each multiple of its size.

        Args:
            starts, stops: of the samples, in ascending order.
            block: size in bytes; blocks may be larger if samples are.
        """
        if not len(starts):
            return Bounds(np.zeros(1, np.int64), np.zeros(1, np.int64), [0])
        firsts = np.unique(np.searchsorted(starts, np.arange(0, int(starts[-1]) + 1, block)))
        firsts[0] = 0
        lasts = np.append(firsts[1:], len(starts)) - 1
        return Bounds(starts[firsts], np.maximum.accumulate(stops)[lasts], (lasts - firsts + 1).tolist())

    def places(self, starts: Any) -> Indices:
        """The number of the block in which each of these bytes lies."""
        places: Indices = self.starts[1:].searchsorted(starts, "right")
        return places
