"""A shuffled order of [0, n) that is computed, not stored: the index at any position, from a key.

NOTE [bijection]: a position is written as (left, right) on a grid of a * b >= n cells, nearly square. Each round adds
to one half a hash of the other, modulo its side, which can be undone, so a round maps the grid one to one, and so do
all rounds together. A cell at n or beyond is sent through again until it comes out below n: that walks along a cycle
of the grid, so it ends, and stays one to one. There are fewer than a such cells. Everything is arithmetic on 64-bit
integers, so it is the same on every machine. A grid of a few cells has too few maps to be fair among all orders; there
the indices are sorted by their hashes.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..randomness import batch_seed

__all__ = ["LARGEST", "Bijection", "hashes"]

Words = NDArray[np.uint64]

LARGEST: Final = 2**62
_ROUNDS: Final = 8
_HALF: Final = np.uint64(32)
_FEW: Final = 64
# Odd numbers without a pattern in their bits: fractions of pi and of the golden ratio.
_PI: Final = np.uint64(0x243F6A8885A308D3)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def _hash(words: Words, key: np.uint64) -> Words:
    """Mixes each word with the key, in place; its upper half is the better one."""
    words += key
    words *= _GOLDEN
    words ^= words >> _HALF
    words *= _PI
    words ^= words >> _HALF
    words *= _GOLDEN
    return words


def hashes(key: int, numbers: NDArray[np.int64]) -> Words:
    """64 random bits for each number, by its hash."""
    words: Words = numbers.astype(np.uint64)
    for turn in range(2):
        words = _hash(words, np.uint64(batch_seed(key, turn)))
        words ^= words >> _HALF
    return words


class Bijection:
    """Each of `range(length)` once, in the order of this key; a slice of it is an array.

    Args:
        length: number of indices, at most 2**62.
        key: 64 bits.

    >>> order = Bijection(1000, key=7)
    >>> sorted(order[0:1000].tolist()) == list(range(1000))
    True
    >>> order[500:503].tolist() == order[0:1000].tolist()[500:503]
    True
    """

    def __init__(self, length: int, key: int) -> None:
        self._length = length
        self._left = math.isqrt(max(length - 1, 0)) + 1
        self._right = max(-(-length // self._left), 1)
        self._keys = [np.uint64(batch_seed(key, length, number)) for number in range(_ROUNDS)]
        self._table = (
            np.argsort(hashes(batch_seed(key, length), np.arange(length)), kind="stable") if length <= _FEW else None
        )

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        if self._table is not None:
            return self._table[part]
        start, stop, step = part.indices(self._length)
        cells = self._sent(np.arange(start, stop, step, dtype=np.int64).view(np.uint64))
        while (beyond := np.flatnonzero(cells >= self._length)).size:
            cells[beyond] = self._sent(cells[beyond])
        return cells.view(np.int64)

    def _sent(self, cells: Words) -> Words:
        """Where the rounds send these cells of the grid."""
        sides = np.uint64(self._left), np.uint64(self._right)
        halves: list[Words] = [cells // sides[1], cells]
        halves[1] = cells - halves[0] * sides[1]
        for number, key in enumerate(self._keys):
            turn = number % 2
            half, side = halves[turn], sides[turn]
            added = _hash(halves[1 - turn].copy(), key)
            added >>= _HALF
            added *= side
            added >>= _HALF  # now below side, all alike
            half += added
            np.minimum(half, half - side, out=half)  # modulo side: what is below it wraps, to a large number
        mixed: Words = halves[0] * sides[1] + halves[1]
        return mixed
