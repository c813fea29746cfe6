"""`IterableDataset`: samples that come one after the other; and which objects a loader takes for iterable ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..errors import bad_argument

__all__ = ["Filter", "IterableDataset", "Step", "Take", "Transform", "check_iterable", "is_iterable", "unwrap"]


@dataclass(frozen=True, slots=True)
class Transform:
    """`fn` over each sample, over its fields where it is a tuple."""

    fn: Callable[..., Any]

    def __call__(self, sample: Any) -> Any:
        return self.fn(*sample) if isinstance(sample, tuple) else self.fn(sample)

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return map(self, samples)  # goes on after an error, which a generator does not


@dataclass(frozen=True, slots=True)
class Filter:
    """The samples for which `fn` is true."""

    fn: Callable[[Any], object]

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return filter(self.fn, samples)


@dataclass(frozen=True, slots=True)
class Take:
    """The first `count` samples."""

    count: int

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return islice(samples, self.count)


Step = Transform | Filter | Take


class IterableDataset:
    """A dataset that is iterated, not indexed: around `source`, or a subclass that defines `__iter__`.

    A loader takes any object with `__iter__` alone; this class makes one of a generator function, and adds the
    methods below.

    Args:
        source: an iterable, or a function without arguments that makes an iterator, such as a generator function.
            Whenever it is iterated in an epoch it has to give the same samples in the same order, which may be
            drawn with `get_rng()`, or outside of worker threads with the global generators.

    Raises:
        ValueError: `source` cannot be iterated, or only once, or is a set.

    >>> def squares():
    ...     for number in range(4):
    ...         yield number**2
    >>> list(IterableDataset(squares).filter(lambda x: x > 0).transform(lambda x: -x))
    [-1, -4, -9]
    """

    _source: Any = None
    _steps: tuple[Step, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> IterableDataset:
        sized = cls is IterableDataset and hasattr((*args, *kwargs.values(), None)[0], "__len__")
        return super().__new__(_Sized if sized else cls)

    def __init__(self, source: Any) -> None:
        if not callable(source) and not hasattr(source, "__iter__"):
            raise bad_argument("source", source, "give an iterable, or a function that makes an iterator")
        _check_again("source", source)
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        if self._source is None:
            raise NotImplementedError(f"{type(self).__name__} must define __iter__")
        samples: Iterator[Any] = iter(self._source if hasattr(self._source, "__iter__") else self._source())
        for step in self._steps:
            samples = step.over(samples)
        return samples

    def transform(self, fn: Callable[..., Any]) -> IterableDataset:
        """The dataset of `fn(sample)`, or of `fn(*sample)` where the sample is a tuple.

        A loader runs it for the samples that are delivered, not for those that a worker reads to skip them.
        """
        return self._and(Transform(fn))

    def filter(self, fn: Callable[[Any], object]) -> IterableDataset:
        """The samples for which `fn(sample)` is true; `fn` gets one argument: the sample, a tuple where it is one."""
        return self._and(Filter(fn))

    def take(self, count: int) -> IterableDataset:
        """The first `count` samples, over all shards; all of them if there are no more.

        Raises:
            ValueError: if `count` is negative.
        """
        if count < 0:
            raise bad_argument("count", count, "give an int >= 0")
        return self._and(Take(count))

    def _and(self, step: Step) -> IterableDataset:
        sized = hasattr(self, "__len__") and not isinstance(step, Filter)
        made = object.__new__(_Sized if sized else IterableDataset)
        made._source, made._steps = self, (step,)
        return made


class _Sized(IterableDataset):
    """Where the source has a length."""

    def __len__(self) -> int:
        return min([len(self._source), *(step.count for step in self._steps if isinstance(step, Take))])


def unwrap(dataset: Any) -> tuple[Any, tuple[Step, ...]]:
    """What lies behind our own wrappers, and what they do to its samples."""
    steps: tuple[Step, ...] = ()
    while type(dataset) in (IterableDataset, _Sized) and hasattr(dataset._source, "__iter__"):
        dataset, steps = dataset._source, dataset._steps + steps
    return dataset, steps


def is_iterable(dataset: Any) -> bool:
    """Whether a loader iterates it, and does not index it.

    torch's IterableDataset inherits a `__getitem__` that raises, and Hugging Face's has one that gives columns.
    """
    if isinstance(dataset, type) or not hasattr(dataset, "__iter__"):
        return False
    return not hasattr(dataset, "__getitem__") or any(
        base.__name__ == "IterableDataset" for base in type(dataset).__mro__
    )


def check_iterable(dataset: Any) -> None:
    """That it can be iterated again.

    Raises:
        ValueError: it is an iterator, which can be used up only once, or a set.
    """
    _check_again("dataset", unwrap(dataset)[0])


def _check_again(name: str, source: Any) -> None:
    if isinstance(source, (set, frozenset)):
        raise bad_argument(name, source, "a set has no order that all processes agree on; give sorted(...), a list")
    # Iterators of MXNet have a reset().
    if hasattr(source, "__next__") and not callable(getattr(source, "reset", None)):
        right = "it can be iterated only once; give the function that makes it: IterableDataset(make)"
        raise bad_argument(name, source, right)
