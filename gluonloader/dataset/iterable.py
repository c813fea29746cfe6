"""`IterableDataset`, and the rule that decides which objects a loader iterates instead of indexing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from ..checks import check_function
from ..describe import describe, short_repr, sized
from ..errors import bad_argument
from ..generics import Sample


@dataclass(frozen=True, slots=True)
class Transform:
    """Applies `fn` to each sample, or to its fields if the sample is a tuple."""

    fn: Callable[..., Any]

    def __call__(self, sample: Any) -> Any:
        return self.fn(*sample) if isinstance(sample, tuple) else self.fn(sample)

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return map(self, samples)  # unlike a generator, `map` can continue after an error


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


class IterableDataset(Generic[Sample]):
    """A dataset that is iterated, not indexed. Pass a `source` of samples, or define `__iter__` in a subclass.

    A loader accepts any object with `__iter__` and no `__getitem__`. This class makes such a dataset from a generator
    function, and adds the methods below.

    Args:
        source: an iterable, or a function without arguments that returns an iterator, such as a generator function. All
            iterations in the same epoch have to yield the same samples in the same order. If the order is random, draw
            it with `get_rng()`; except in worker threads, the global generators work, too.

    Raises:
        ValueError: `source` cannot be iterated, can be iterated only once, or is a set.

    >>> def squares():
    ...     for number in range(4):
    ...         yield number**2
    >>> list(IterableDataset(squares).filter(lambda x: x > 0).transform(lambda x: -x))
    [-1, -4, -9]
    """

    _source: Any = None
    _steps: tuple[Step, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> IterableDataset[Sample]:
        sized = cls is IterableDataset and hasattr((*args, *kwargs.values(), None)[0], "__len__")
        return super().__new__(_Sized if sized else cls)

    def __init__(self, source: Any) -> None:
        if not callable(source) and not hasattr(source, "__iter__"):
            raise bad_argument("source", source, "pass an iterable, or a function that returns an iterator")
        _check_repeatable("source", source)
        self._source = source

    def __iter__(self) -> Iterator[Sample]:
        if self._source is None:
            raise NotImplementedError(f"{type(self).__name__} must define __iter__")
        samples: Iterator[Any] = iter(self._source if hasattr(self._source, "__iter__") else self._source())
        for step in self._steps:
            samples = step.over(samples)
        return samples

    @short_repr
    def __repr__(self) -> str:
        source = describe(self._source)
        if self._source is None:
            return sized(self)
        for step in self._steps:
            source += f".{type(step).__name__.lower()}({describe(step.count if isinstance(step, Take) else step.fn)})"
        name = "IterableDataset" if type(self) is _Sized else type(self).__name__
        return source if self._steps else f"{name}({source})"

    def transform(self, fn: Callable[..., Any]) -> IterableDataset:
        """Returns the dataset of `fn(sample)`, or of `fn(*sample)` if the sample is a tuple. If a worker reads a sample
        only to skip it, `fn` does not run on that sample.
        """
        check_function("fn", fn)
        return self._with(Transform(fn))

    def filter(self, fn: Callable[[Sample], object]) -> IterableDataset[Sample]:
        """Returns the samples for which `fn(sample)` is true; `fn` takes one argument, even if that is a tuple."""
        return self._with(Filter(fn))

    def take(self, count: int) -> IterableDataset[Sample]:
        """Returns the first `count` samples, counted over all shards; all samples if there are fewer.

        Raises:
            ValueError: if `count` is negative.
        """
        if count < 0:
            raise bad_argument("count", count, "must be an int >= 0")
        return self._with(Take(count))

    def _with(self, step: Step) -> IterableDataset[Any]:
        sized = hasattr(self, "__len__") and not isinstance(step, Filter)
        dataset = object.__new__(_Sized if sized else IterableDataset)
        dataset._source, dataset._steps = self, (step,)
        return dataset


class _Sized(IterableDataset):
    """An iterable dataset whose source has a length."""

    def __len__(self) -> int:
        return min([len(self._source), *(step.count for step in self._steps if isinstance(step, Take))])


def unwrap(dataset: Any) -> tuple[Any, tuple[Step, ...]]:
    """The dataset inside of `IterableDataset` wrappers, and the steps that the wrappers apply to its samples."""
    steps: tuple[Step, ...] = ()
    while type(dataset) in (IterableDataset, _Sized) and hasattr(dataset._source, "__iter__"):
        dataset, steps = dataset._source, dataset._steps + steps
    return dataset, steps


def is_iterable(dataset: Any) -> bool:
    """Whether a loader iterates the dataset instead of indexing it.

    torch's IterableDataset inherits a `__getitem__` that raises; `__getitem__` of Hugging Face returns columns.
    """
    if isinstance(dataset, type) or not hasattr(dataset, "__iter__"):
        return False
    return not hasattr(dataset, "__getitem__") or any(
        base.__name__ == "IterableDataset" for base in type(dataset).__mro__
    )


def check_iterable(dataset: Any) -> None:
    """Raises a ValueError if the dataset is an iterator, which can be iterated only once, or a set."""
    _check_repeatable("dataset", unwrap(dataset)[0])


def _check_repeatable(name: str, source: Any) -> None:
    if isinstance(source, (set, frozenset)):
        raise bad_argument(name, source, "the order of a set differs between processes; pass a list, e.g. sorted(...)")
    # MXNet's iterators can be iterated again after reset().
    if hasattr(source, "__next__") and not callable(getattr(source, "reset", None)):
        right = "it can be iterated only once; pass a function that makes a new iterator: IterableDataset(make)"
        raise bad_argument(name, source, right)
