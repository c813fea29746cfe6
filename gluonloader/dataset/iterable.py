"""`IterableDataset`, several of them joined, and the rule which objects a loader iterates instead of indexing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from operator import itemgetter
from typing import Any, Final, Generic, Literal

from ..checks import check_function, check_int, check_predicate, check_shard
from ..describe import arguments, call, class_name, counted, describe, short_repr, sized
from ..errors import as_exception, bad_argument
from ..messages import message
from ..tree import Sample
from .opening import (
    NewestIterators,
    Opened,
    at_epoch,
    check_shards,
    has_epoch_or_state,
    has_shard,
    make_shard,
    most_shards,
    part_of,
    steps_in_shards,
)

_SAMPLE: Final = itemgetter(1)  # of a pair of a number and a sample


@message(frozen=True, slots=True)
class Transform:
    """Applies `fn` to each sample, or to its fields if the sample is a tuple."""

    fn: Callable[..., Any]

    def __call__(self, sample: Any) -> Any:
        return _result(self, *sample) if isinstance(sample, tuple) else _result(self, sample)

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return map(self, samples)  # unlike a generator, `map` can continue after an error


@message(frozen=True, slots=True)
class Filter:
    """The samples for which `fn` is true."""

    fn: Callable[[Any], object]

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return filter(partial(_result, self), samples)


@message(frozen=True, slots=True)
class Take:
    """The first `count` samples."""

    count: int

    def over(self, samples: Iterator[Any]) -> Iterator[Any]:
        return map(_SAMPLE, zip(range(self.count), samples, strict=False))  # `islice` would end at an error


Step = Transform | Filter | Take


def _result(step: Transform | Filter, *arguments: Any) -> Any:
    """What the user's function returns. A StopIteration becomes a RuntimeError, or it would end the samples."""
    try:
        return step.fn(*arguments)
    except StopIteration as error:
        raise as_exception(error, type(step).__name__.lower()) from error


class IterableDataset(Generic[Sample]):
    """A dataset that is iterated, not indexed. Pass a `source` of samples, or define `__iter__` in a subclass.

    A loader accepts any object with `__iter__` and no `__getitem__`. This class makes such a dataset from a generator
    function, says how a loader reads a dataset, and adds the methods below.

    Args:
        source: an iterable, or a function without arguments that returns an iterator, such as a generator function. All
            iterations in the same epoch have to yield the same samples in the same order. If the order is random, draw
            it with `get_rng()`; except in worker threads, the global generators work, too.
        num_shards: number of shards into which a loader divides the dataset; one worker reads each shard. The default
            is one shard per worker. The order of the samples depends on `num_shards`, not on the number of workers.
        shuffle_buffer: for a loader with `shuffle`: how many samples of each shard are kept in memory and shuffled with
            each other; default 1000.

    Raises:
        ValueError: `source` cannot be iterated, can be iterated only once, or is a set; or a number is wrong.

    >>> def squares():
    ...     for number in range(4):
    ...         yield number**2
    >>> list(IterableDataset(squares).filter(lambda x: x > 0).transform(lambda x: -x))
    [-1, -4, -9]
    """

    _source: Any = None
    _steps: tuple[Step, ...] = ()
    _num_shards: int | None = None
    _shuffle_buffer: int | None = None

    def __init__(self, source: Any, num_shards: int | None = None, shuffle_buffer: int | None = None) -> None:
        if not callable(source) and not hasattr(source, "__iter__"):
            raise bad_argument("source", source, "pass an iterable, or a function that returns an iterator")
        _check_repeatable("source", source)
        self._source = source
        if num_shards is not None:
            self._num_shards = check_int("num_shards", num_shards, 1)
        if shuffle_buffer is not None:
            self._shuffle_buffer = check_int("shuffle_buffer", shuffle_buffer, 2)
        if type(self) is IterableDataset and hasattr(source, "__len__"):
            self.__class__ = _Sized

    def __iter__(self) -> Iterator[Sample]:
        if self._source is None:
            raise NotImplementedError(f"{type(self).__name__} must define __iter__")
        samples: Iterator[Any] = iter(self._source if hasattr(self._source, "__iter__") else self._source())
        return through(self._steps, samples)

    @property
    def _inside(self) -> Sequence[Any]:
        """The datasets that it reads and to which it passes on its epoch."""
        return ()

    @short_repr
    def __repr__(self) -> str:
        source = describe(self._source)
        if self._source is None:
            return sized(self)
        for step in self._steps:
            source += f".{type(step).__name__.lower()}({describe(step.count if isinstance(step, Take) else step.fn)})"
        if self._steps or isinstance(self._source, (ChainDataset, _ShardView)):
            return source
        return call(self, source, *arguments(num_shards=self._num_shards, shuffle_buffer=self._shuffle_buffer))

    def __add__(self, other: Any) -> IterableDataset[Any]:
        """Returns the samples of this dataset, then those of `other`, which is anything that `IterableDataset` accepts.

        >>> list(IterableDataset([1, 2]) + [3])
        [1, 2, 3]
        """
        datasets: list[IterableDataset[Any]] = []
        for dataset in (self, other if isinstance(other, IterableDataset) else IterableDataset(other)):
            inner, steps = unwrap(dataset)
            if hasattr(inner, "__next__"):
                right = "it is a single iterator; pass a function that makes a new one: IterableDataset(make)"
                raise bad_argument("source", inner, right)
            datasets += inner.datasets if isinstance(inner, ChainDataset) and not steps else [dataset]
        return _wrapped(ChainDataset(datasets), (), all(hasattr(dataset, "__len__") for dataset in datasets))

    def transform(self, fn: Callable[..., Any]) -> IterableDataset:
        """Returns the dataset of `fn(sample)`, or of `fn(*sample)` if the sample is a tuple. If a worker reads a sample
        only to skip it, `fn` does not run on that sample.
        """
        check_function("fn", fn)
        return self._with(Transform(fn))

    def filter(self, fn: Callable[[Sample], object]) -> IterableDataset[Sample]:
        """Returns the samples for which `fn(sample)` is true; `fn` takes one argument, even if that is a tuple."""
        check_predicate("fn", fn)
        return self._with(Filter(fn))

    def take(self, count: int) -> IterableDataset[Sample]:
        """Returns the first `count` samples, counted over all shards; all samples if there are fewer.

        Raises:
            ValueError: if `count` is negative.
        """
        if count < 0:
            raise bad_argument("count", count, "must be an int >= 0")
        return self._with(Take(count))

    def shard(self, num_shards: int, index: int) -> IterableDataset[Sample]:
        """Returns shard `index` of `num_shards`, which together contain each sample once.

        If the source has a method `shard`, that makes the shard. Otherwise the shard is every `num_shards`-th sample,
        and the whole source is read to get it. A subclass may define its own method `shard`, which a loader then calls.

        Raises:
            ValueError: unless `0 <= index < num_shards`.

        >>> [list(IterableDataset(range(5)).filter(lambda x: x != 1).shard(2, i)) for i in range(2)]
        [[0, 3], [2, 4]]
        """
        num_shards, index = check_shard(num_shards, index)
        view = _ShardView(self, num_shards, index)
        return _wrapped(view, (), hasattr(self, "__len__") and view.is_cut)

    vars(shard)["makes_view"] = True  # see `has_shard`

    def _with(self, step: Step) -> IterableDataset[Any]:
        return _wrapped(self, (step,), hasattr(self, "__len__") and not isinstance(step, Filter))

    @property
    def _users_dataset(self) -> Any:
        return unwrap(self)[0]  # for texts


class _Sized(IterableDataset):
    """An iterable dataset whose source has a length."""

    def __len__(self) -> int:
        return length_of(self._source, self._steps)


_Sized.__name__ = "IterableDataset"  # in texts; pickle uses `__qualname__`


def length_of(source: Any, steps: tuple[Step, ...]) -> int:
    """The number of samples after the steps, if none of them is a filter; TypeError if the source has no length."""
    return min([len(source), *(step.count for step in steps if isinstance(step, Take))])


def _wrapped(source: Any, steps: tuple[Step, ...], sized: bool = False) -> IterableDataset[Any]:
    dataset: IterableDataset[Any] = object.__new__(_Sized if sized else IterableDataset)
    dataset._source, dataset._steps = source, steps
    return dataset


class _ShardView:
    """A shard of a dataset, which is made again for each iteration.

    Attributes:
        is_cut: the shard is every `num_shards`-th sample of the whole dataset.
    """

    def __init__(self, dataset: IterableDataset[Any], num_shards: int, index: int) -> None:
        self._dataset, self._num_shards, self._index = dataset, num_shards, index
        self._source, self._steps = unwrap(dataset)
        self._epoch: int | None = None
        self.is_cut = not makes_shards(self._source, self._steps)

    def __iter__(self) -> Iterator[Any]:
        part = part_of(self._source, self._num_shards, self._index, self._epoch, self.is_cut)
        steps, transforms = split_steps(self._steps)  # the transforms need not run on samples of other shards
        samples = through(steps, Opened(part.dataset, class_name(part.dataset), stateful=False))
        own = filter(lambda numbered: numbered[0] % part.stride == part.start, zip(count(), samples, strict=False))
        return through(transforms, map(_SAMPLE, own))

    def __len__(self) -> int:
        return len(range(self._index, length_of(self._source, self._steps), self._num_shards))

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch  # see NOTE [epochs of shards]

    @property
    def _inside(self) -> Sequence[Any]:
        return (self._dataset,)

    @short_repr
    def __repr__(self) -> str:
        return f"{describe(self._dataset)}.shard({self._num_shards}, {self._index})"


class ChainDataset:
    """Iterable datasets that are read one after the other: the source of `first + second`.

    The chain has a method `shard` if all its datasets have that method, and a length if all have a length.
    """

    def __init__(self, datasets: list[IterableDataset[Any]]) -> None:
        self.datasets = datasets
        self._epoch: int | None = None
        self._made_by_shard: tuple[int, int] | None = None  # the arguments of `shard` that made this chain
        self._opened = [NewestIterators() for _ in datasets]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(self._open, range(len(self.datasets))))

    def _open(self, number: int) -> Iterator[Any]:
        source, steps = unwrap(self.datasets[number])
        samples = Opened(at_epoch(source, self._epoch), class_name(source), stateful=False)
        method = "shard" if self._made_by_shard else f"{type(source).__name__}.__iter__"
        self._opened[number].add(self._made_by_shard, samples.samples, method)
        return through(steps, samples)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))  # type: ignore[arg-type]  # a TypeError if one has no length

    @short_repr
    def __repr__(self) -> str:
        return f"({' + '.join(map(describe, self.datasets))})"

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration read each dataset in this epoch."""
        self._epoch = epoch  # see NOTE [epochs of shards]

    @property
    def shard(self) -> Callable[[int, int], ChainDataset]:
        """The method that makes a chain of one shard of each dataset."""
        for source, steps in map(unwrap, self.datasets):
            if not makes_shards(source, steps):
                raise AttributeError("shard")  # workers have to count the samples of the whole chain
        return self._make_shard

    @property
    def _inside(self) -> list[IterableDataset[Any]]:
        return self.datasets

    @property
    def num_shards(self) -> int | None:
        """The number of shards of the dataset that has the fewest; None if no dataset has a limit."""
        counts = [most_shards(unwrap(dataset)[0]) for dataset in self.datasets]
        return min([count for count in counts if count is not None], default=None)

    def _make_shard(self, num_shards: int, index: int) -> ChainDataset:
        shards = []
        for source, steps in map(unwrap, self.datasets):
            part = make_shard(source, num_shards, index, self._epoch)
            shards.append(_wrapped(part, steps, hasattr(part, "__len__") and not filters(steps)))
        shard = ChainDataset(shards)
        shard._made_by_shard, shard._opened = (num_shards, index), self._opened
        return shard


def asked(dataset: Any, option: Literal["num_shards", "shuffle_buffer"]) -> int | None:
    """How a loader has to read a dataset, as the dataset or one that it wraps says; None if no dataset says it.

    Raises:
        ValueError: the datasets of a chain say different values.
    """
    while isinstance(dataset, IterableDataset):
        value: int | None = getattr(dataset, f"_{option}")
        if value is not None:
            return value
        dataset = dataset._source
    parts = dataset.datasets if isinstance(dataset, ChainDataset) else []
    values = sorted({value for part in parts if (value := asked(part, option)) is not None})
    if len(values) > 1:
        raise ValueError(
            f"{describe(dataset)}: its datasets have {option}={' and '.join(map(str, values))}; "
            f"wrap the chain: IterableDataset(first + second, {option}={values[-1]})"
        )
    return values[0] if values else None


def unwrap(dataset: Any) -> tuple[Any, tuple[Step, ...]]:
    """The dataset inside of `IterableDataset` wrappers, and the steps that the wrappers apply to its samples."""
    steps: tuple[Step, ...] = ()
    while type(dataset) in (IterableDataset, _Sized) and hasattr(dataset._source, "__iter__"):
        dataset, steps = dataset._source, dataset._steps + steps
    return dataset, steps


def through(steps: Sequence[Step], samples: Iterator[Any]) -> Iterator[Any]:
    """The samples after these steps."""
    for step in steps:
        samples = step.over(samples)
    return samples


def split_steps(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Transform, ...]]:
    """The steps before the last transforms, and these transforms, each of which needs only its own sample."""
    transforms: tuple[Transform, ...] = ()
    while steps and isinstance(last := steps[-1], Transform):
        steps, transforms = steps[:-1], (last, *transforms)
    return steps, transforms


def takes(steps: Sequence[Step]) -> bool:
    """Whether one of the steps is `take`, which counts the samples of all shards from the start."""
    return any(isinstance(step, Take) for step in steps)


def filters(steps: Sequence[Step]) -> bool:
    """Whether one of the steps is `filter`, so the number of samples is not known."""
    return any(isinstance(step, Filter) for step in steps)


def makes_shards(source: Any, steps: Sequence[Step]) -> bool:
    """Whether the source makes the shards itself; otherwise they are cut out of the samples after the steps."""
    return has_shard(source) and not takes(steps)


def own_shard(
    dataset: IterableDataset[Any], num_shards: int, index: int, epoch: int | None
) -> tuple[Any, tuple[Step, ...]]:
    """The object that the method `shard` of the source returns in that epoch, and the steps over it; to iterate once.

    Raises:
        ValueError: the source has no such method, or makes fewer shards; or `take` counts the samples of all shards.
    """
    source, steps = unwrap(dataset)
    if num_shards == 1:
        return at_epoch(source, epoch), steps
    most = most_shards(source) if makes_shards(source, steps) else 1
    if most is not None and most < num_shards:
        why = f"{describe(dataset)} makes only {counted(most, 'shard', 'shards')}, but the loader reads {num_shards}"
        raise ValueError(f"{why}; pass IterableDataset(..., num_shards={most}), or define the method `shard`")
    return make_shard(source, num_shards, index, epoch), steps


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


def check_split(dataset: Any, num_shards: int, has_ranks: bool) -> None:
    """Raises a ValueError if the dataset, or a part of it, splits itself; see `check_shards`."""
    source, _ = unwrap(dataset)
    for part in getattr(source, "_inside", ()):
        check_split(part, num_shards, has_ranks)
    check_shards(source, num_shards, has_ranks)


def varying_steps(dataset: Any, num_shards: int) -> set[str]:
    """The steps of the dataset, or of a part of it, that choose other samples for each number of shards."""
    source, steps = unwrap(dataset)
    if not makes_shards(source, steps):
        return set()  # the shards are cut out of the whole dataset
    inside = (varying_steps(part, num_shards) for part in getattr(source, "_inside", ()))
    return steps_in_shards(source, num_shards).union(*inside)


def _check_repeatable(name: str, source: Any) -> None:
    if isinstance(source, (set, frozenset)):
        raise bad_argument(name, source, "the order of a set differs between processes; pass a list, e.g. sorted(...)")
    # MXNet's iterators can be iterated again after reset().
    if hasattr(source, "__next__") and not callable(getattr(source, "reset", None)):
        right = "it can be iterated only once; pass a function that makes a new iterator: IterableDataset(make)"
        raise bad_argument(name, source, right)


def seeded_parts(dataset: Any) -> tuple[Any, ...]:
    """The parts of an iterable dataset whose generators are seeded for each chunk; see NOTE [held generators].

    A source with `set_epoch` or `load_state_dict`, such as Hugging Face's, seeds or restores its generators itself.
    """
    source, steps = unwrap(dataset)
    if inside := getattr(source, "_inside", ()):
        return (*chain.from_iterable(map(seeded_parts, inside)), *steps)
    return steps if has_epoch_or_state(source) else (source, *steps)
