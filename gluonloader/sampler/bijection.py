"""A shuffled order of [0, n) that is computed, not stored: the index at any offset is a function of a seed.

NOTE [bijection]: an offset is written as (left, right) on a nearly square grid of a * b >= n cells. Each round adds to
one half a hash of the other half, modulo the length of its side. A round can be undone, so each round maps the grid one
to one, and so do all rounds together. A cell at n or beyond is mapped again until the result is below n. This follows a
cycle of the map, so it ends and stays one to one; fewer than `a` cells lie at n or beyond. All arithmetic is on 64-bit
integers, so the order is the same on every machine. On a grid of a few cells the rounds produce only some of the
possible orders, so short orders sort the indices by their hashes instead.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..randomness import batch_seed

Words = NDArray[np.uint64]

LARGEST: Final = 2**62  # most indices, so that no sum overflows 64 bits
_ROUNDS: Final = 8
_HALF: Final = np.uint64(32)  # bits in half a word
_MOST_SORTED: Final = 64  # up to this many indices are sorted by their hashes
# Odd numbers whose bits have no pattern, from the fractions of pi and of the golden ratio.
_PI: Final = np.uint64(0x243F6A8885A308D3)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: Words, seed: np.uint64) -> Words:
    """Hashes each word with the seed, in place; the upper half of the result is the more random one."""
    words += seed
    words *= _GOLDEN
    words ^= words >> _HALF
    words *= _PI
    words ^= words >> _HALF
    words *= _GOLDEN
    return words


def hashes(seed: int, numbers: NDArray[np.int64]) -> Words:
    """64 random bits for each number: a hash of the number and the seed."""
    words: Words = numbers.astype(np.uint64)
    for turn in range(2):
        words = _mix(words, np.uint64(batch_seed(seed, turn)))
        words ^= words >> _HALF
    return words


class Bijection:
    """Each index of `range(length)` once, in an order that depends on a 64-bit seed; its slices are arrays.

    >>> order = Bijection(1000, seed=7)
    >>> sorted(order[0:1000].tolist()) == list(range(1000))
    True
    >>> order[500:503].tolist() == order[0:1000].tolist()[500:503]
    True
    """

    def __init__(self, length: int, seed: int) -> None:
        self._length = length
        self._left = math.isqrt(max(length - 1, 0)) + 1
        self._right = max(-(-length // self._left), 1)
        self._seeds = [np.uint64(batch_seed(seed, length, number)) for number in range(_ROUNDS)]
        self._table = None
        if length <= _MOST_SORTED:
            self._table = np.argsort(hashes(batch_seed(seed, length), np.arange(length)), kind="stable")

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        if self._table is not None:
            return self._table[part]
        start, stop, step = part.indices(self._length)
        cells = self._mapped(np.arange(start, stop, step, dtype=np.int64).view(np.uint64))
        while (beyond := np.flatnonzero(cells >= self._length)).size:
            cells[beyond] = self._mapped(cells[beyond])
        return cells.view(np.int64)

    def _mapped(self, cells: Words) -> Words:
        sides = np.uint64(self._left), np.uint64(self._right)
        halves: list[Words] = [cells // sides[1], cells]
        halves[1] = cells - halves[0] * sides[1]
        for number, seed in enumerate(self._seeds):
            turn = number % 2
            half, side = halves[turn], sides[turn]
            added = _mix(halves[1 - turn].copy(), seed)
            added >>= _HALF
            added *= side
            added >>= _HALF  # now uniform below `side`
            half += added
            np.minimum(half, half - side, out=half)  # modulo `side`: a negative difference wraps to a large number
        mapped: Words = halves[0] * sides[1] + halves[1]
        return mapped
