"""Samplers: in what order a dataset is read, and how indices are cut into batches. Names and meaning are Gluon's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from .errors import bad_argument
from .randomness import batch_seed, draw_seed

__all__ = [
    "BatchPass",
    "BatchSampler",
    "FilterSampler",
    "IntervalSampler",
    "LastBatch",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
]

LastBatch = Literal["keep", "discard", "rollover"]


class SizedIterable(Protocol):
    """What a sampler has to offer: any sized iterable is one, a plain list too."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


def _length(name: str, value: object) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise bad_argument(name, value, "give the number of samples, an int >= 0, e.g. len(dataset)")
    return int(value)


class Sampler:
    """Base of samplers: `__iter__` yields indices (any hashable keys), `__len__` says how many.

    Deriving from it is optional: a loader takes any sized iterable. `Dataset.sample` takes one too.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")


class SequentialSampler(Sampler):
    """Indices `start`, `start + 1`, ..., `start + length - 1`.

    >>> list(SequentialSampler(3, start=5))
    [5, 6, 7]
    """

    def __init__(self, length: int, start: int = 0) -> None:
        self._range = range(start, start + _length("length", length))

    def __iter__(self) -> Iterator[int]:
        return iter(self._range)

    def __len__(self) -> int:
        return len(self._range)


class RandomSampler(Sampler):
    """Every index of `range(length)` once, in an order that is new each epoch.

    The order is a function of (seed, epoch). Each iteration is the next epoch, unless `set_epoch` says otherwise.

    Args:
        length: number of samples.
        seed: an int; None draws one from NumPy's global generator now.

    >>> sampler = RandomSampler(4, seed=1)
    >>> sorted(sampler) == sorted(sampler) == [0, 1, 2, 3]
    True
    >>> sampler.set_epoch(0); first = list(sampler)
    >>> sampler.set_epoch(0); first == list(sampler)
    True
    """

    def __init__(self, length: int, seed: int | None = None) -> None:
        self._size = _length("length", length)
        self._seed = draw_seed() if seed is None else int(seed)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives the order of this epoch."""
        self._epoch = int(epoch)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng(batch_seed(self._seed, self._epoch))
        self._epoch += 1
        return _ints(rng.permutation(self._size))

    def __len__(self) -> int:
        return self._size


def _ints(indices: np.ndarray[Any, Any], block: int = 4096) -> Iterator[int]:
    # Python ints, block by block: datasets of every kind take them, and a list of all of them would cost 32 bytes each.
    for start in range(0, len(indices), block):
        yield from indices[start : start + block].tolist()


class FilterSampler(Sampler):
    """Indices of the samples for which `fn(sample)` is true; `fn` runs over the whole dataset once, now.

    >>> list(FilterSampler(lambda x: x > 1, [3, 0, 2]))
    [0, 2]
    """

    def __init__(self, fn: Callable[[Any], object], dataset: Any) -> None:
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class IntervalSampler(Sampler):
    """Every `interval`-th index; with `rollover` then again from 1, from 2, ... until every index came once.

    >>> list(IntervalSampler(7, 3))
    [0, 3, 6, 1, 4, 2, 5]
    >>> list(IntervalSampler(7, 3, rollover=False))
    [0, 3, 6]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        size = _length("length", length)
        if not 0 < interval <= size:
            raise bad_argument("interval", interval, f"give an int from 1 to length ({size})")
        starts = range(interval if rollover else 1)
        self._ranges = [range(start, size, interval) for start in starts]

    def __iter__(self) -> Iterator[int]:
        return (index for indices in self._ranges for index in indices)

    def __len__(self) -> int:
        return sum(map(len, self._ranges))


class BatchSampler(Sampler):
    """Cuts a sampler into lists of `batch_size` indices.

    Args:
        sampler: any sized iterable of indices.
        batch_size: indices in a batch, at least 1.
        last_batch: what becomes of a last batch that is too short: 'keep' gives it as it is, 'discard' drops it,
            'rollover' puts its indices at the start of the next pass. A pass that is broken off changes nothing:
            the next one starts with the same carried indices.

    >>> batches = BatchSampler(range(5), 2, "rollover")
    >>> list(batches)
    [[0, 1], [2, 3]]
    >>> len(batches), list(batches)
    (3, [[4, 0], [1, 2], [3, 4]])
    """

    def __init__(self, sampler: SizedIterable, batch_size: int, last_batch: LastBatch = "keep") -> None:
        if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
            raise bad_argument("batch_size", batch_size, "give the number of samples in a batch, an int >= 1")
        if last_batch not in ("keep", "discard", "rollover"):
            raise bad_argument("last_batch", last_batch, "give 'keep', 'discard' or 'rollover'")
        self.sampler = sampler
        self.batch_size = int(batch_size)
        self.last_batch: LastBatch = last_batch
        self.carried: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batches = self.begin()
        yield from batches
        batches.commit()

    def begin(self) -> BatchPass:
        """One pass whose carry takes effect only at its `commit`: a loader draws ahead of what it delivers."""
        return BatchPass(self)

    def __len__(self) -> int:
        samples = len(self.sampler) + len(self.carried)
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size


class BatchPass(Iterator[list[Any]]):
    """One pass over a `BatchSampler`; `commit` stores what it carries over into the next pass."""

    def __init__(self, batches: BatchSampler) -> None:
        self._batches = batches
        self._carried: list[Any] = list(batches.carried)
        self._rest: list[Any] = []
        self._indices: Iterator[Any] = iter(batches.sampler)

    def __next__(self) -> list[Any]:
        size, last_batch = self._batches.batch_size, self._batches.last_batch
        batch = list(islice(self._indices, size - len(self._carried)))
        if self._carried:
            batch, self._carried = self._carried + batch, []
        if len(batch) == size or (batch and last_batch == "keep"):
            return batch
        if last_batch == "rollover":
            self._rest += batch
        raise StopIteration

    def commit(self) -> None:
        """The pass was used to its end: what it left over starts the next one."""
        if self._batches.last_batch == "rollover":
            self._batches.carried = self._rest


def iterate(batch_sampler: Iterable[Any]) -> Iterator[Any]:
    """One pass over any batch sampler; ours commits its carry later, on delivery."""
    ours = getattr(type(batch_sampler), "__iter__", None) is BatchSampler.__iter__  # and not a subclass's own
    return batch_sampler.begin() if ours and isinstance(batch_sampler, BatchSampler) else iter(batch_sampler)
