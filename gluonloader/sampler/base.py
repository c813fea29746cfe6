"""Base classes of samplers, and `BatchSampler`, which cuts the indices of any sampler into batches.

Sampler, OrderedSampler, SeededSampler       base classes: all samplers, samplers with a known order, those that shuffle
BatchSampler                                 lists of indices
chained                                      an order of several arrays
iterating_class                              the class whose `__iter__` a sampler has
check_length, check_ints                     checks of arguments
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import LastBatch, check_indices, check_int, check_last_batch
from ..describe import arguments, call, describe, short_repr, sized
from ..errors import bad_state, explain_arguments
from ..indices import as_list, is_int_array
from ..randomness import batch_seed, checked_seed
from ..state import check_same, field, int_field, seed_field
from .passes import READ_AHEAD, BatchPass, Computed, Integers, Pass, Sliceable, as_keys, change_from, length_of
from .saved import FIXED, PATH, chain_of, check_saved_pass, inner_state, load_saved_pass, saved_pass

_JSON_KEYS: Final = (int, str, float, bool, type(None))  # indices of these types survive JSON


class SizedIterable(Protocol):
    """What a loader requires of a sampler; a list is sufficient."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Sampler:
    """Base class of samplers; in a subclass, `__iter__` yields indices (any hashable keys), `__len__` is their number.

    Deriving from it is optional: a loader accepts any iterable with a length, and `Dataset.sample` any iterable.
    """

    _per_pass: tuple[str, ...] = ()  # the attributes that the start of a pass changes

    def _forget_position(self) -> None:
        """Makes the next pass start at its first key, also if a position was loaded."""

    def _may_yield(self, key: Any) -> bool:
        """Whether a pass may yield this key; True if only the pass would tell."""
        return True

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    __repr__ = short_repr(sized)


class OrderedSampler(Sampler):
    """Base class of samplers whose order can be sliced, so that a pass moves to any key without reading other keys."""

    _indices: Sequence[Any] | Integers  # the order of a pass; a subclass may override _order and __len__ instead
    _state_fields: Mapping[str, Any] = {}  # arguments that the order depends on, as fields of the pass state
    _read_ahead = READ_AHEAD

    @property
    def random_over(self) -> Any:
        """The indices, an array or a range, of which each part of a pass contains a random choice; None otherwise."""
        return None

    def _order(self) -> Sliceable:
        """The order of the pass that starts now."""
        return self._indices

    def __iter__(self) -> Iterator[Any]:
        return Pass(self._order(), length_of(self), self._read_ahead)

    def __len__(self) -> int:
        return len(self._indices)

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON."""
        return {"length": len(self), **self._state_fields}

    def _may_yield(self, key: Any) -> bool:
        indices = getattr(self, "_indices", None)
        return indices is None or iterating_class(self) is not OrderedSampler or _contains(indices, key)

    def refreshed(self, state: dict[str, Any], drawn: int) -> dict[str, Any]:
        """The state of a pass that has started, with the fields that have changed since then.

        Args:
            drawn: number of keys of this pass before the position that is saved.
        """
        return state

    def check_pass_state(self, state: Mapping[str, Any], *free: str) -> None:
        """Checks that all fields except those in `free` are equal to those of this sampler."""
        for name, ours in self.pass_state().items():
            if name not in free:
                check_same(state, name, ours, f"this {type(self).__name__}", PATH)

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Makes the next pass repeat the pass that `pass_state` described; see `load_saved_pass`."""
        self.check_pass_state(state)
        return drawn


def iterating_class(sampler: Any) -> type | None:
    """The class whose `__iter__` a sampler has: a class of gluonloader, unless a subclass of the user overrides it."""
    return next((kind for kind in type(sampler).__mro__ if "__iter__" in vars(kind)), None)


def may_yield(sampler: Any, key: Any) -> bool:
    """Whether a pass of any sampler may yield a key, which is of a JSON type; True if only the pass would tell."""
    if type(sampler) in FIXED:
        return _contains(sampler, key)
    return not isinstance(sampler, Sampler) or sampler._may_yield(key)


def _contains(indices: Any, key: Any) -> bool:
    if isinstance(indices, (list, tuple)):
        return key in indices
    if isinstance(indices, np.ndarray):
        return bool(np.any(indices == key)) if type(key) in (int, float, bool) else indices.dtype.kind not in "biuf"
    return type(key) is int and key in indices  # a range


def start_order(sampler: Any) -> tuple[Sliceable | None, int]:
    """The order of a pass that starts now (None if the sampler has only `__iter__`), and how far to read ahead."""
    if type(sampler) in FIXED:
        return list(sampler) if isinstance(sampler, np.ndarray) and not is_int_array(sampler) else sampler, READ_AHEAD
    if iterating_class(sampler) is OrderedSampler:
        return sampler._order(), sampler._read_ahead
    if isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__:
        return sampler.order_of_batches(), 0
    return None, 0


def start_pass(sampler: Any) -> Iterator[Any]:
    """One pass over any sampler of indices."""
    order, read_ahead = start_order(sampler)
    return iter(sampler) if order is None else Pass(order, length_of(sampler), read_ahead)


class SeededSampler(OrderedSampler):
    """Base class of samplers that shuffle: the order depends only on (seed, epoch); each iteration is the next epoch.

    Args:
        seed: an int; None draws one from NumPy's global generator now.
        draws: whether the order depends on the seed.
    """

    _per_pass: tuple[str, ...] = ("_epoch",)

    def __init__(self, seed: int | None, draws: bool = True) -> None:
        self.adopts = draws and seed is None  # whether a loaded position replaces the seed
        self._seed = checked_seed(0 if seed is None and not draws else seed)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        self._epoch = int(epoch)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch - 1

    def next_pass_seed(self) -> int:
        """64 bits from which the order of the pass that starts now is computed."""
        return batch_seed(self._seed, self._next_epoch())

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "seed": self._seed, "epoch": self._epoch}

    def check_pass_state(self, state: Mapping[str, Any], *free: str) -> None:
        seed_field(state, PATH)
        int_field(state, "epoch", path=PATH)
        super().check_pass_state(state, "epoch", *(["seed"] if self.adopts else []), *free)

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        self.check_pass_state(state)
        self._seed, self._epoch = state["seed"], state["epoch"]
        return drawn


def keep_pass(sampler: Any) -> Callable[[], None]:
    """Saves what the start of a pass changes in a sampler and those in it; returns a function that restores it."""
    kept = [
        (part, name, getattr(part, name))
        for part in chain_of(sampler)
        if isinstance(part, Sampler)
        for name in part._per_pass
    ]

    def restore() -> None:
        for kept_sampler, name, value in kept:
            setattr(kept_sampler, name, value)

    return restore


class BatchSampler(Sampler):
    """Cuts the indices of a sampler into lists of `batch_size`.

    Args:
        sampler: any iterable of indices with a length.
        batch_size: number of indices in a batch, at least 1.
        last_batch: what to do with a last batch that is too short: 'keep' yields it, 'discard' drops it, and 'rollover'
            moves its indices to the start of the next iteration. If an iteration stops early, the next iteration starts
            with the same moved indices as that one.

    >>> batches = BatchSampler(range(5), 2, "rollover")
    >>> list(batches)
    [[0, 1], [2, 3]]
    >>> len(batches), list(batches)
    (3, [[4, 0], [1, 2], [3, 4]])
    """

    _per_pass = ("_start",)
    _start = 0  # how many indices the next pass leaves out, after a resume with another batch size

    @explain_arguments(drop_last='pass last_batch="discard" instead')
    def __init__(self, sampler: SizedIterable, batch_size: int, last_batch: LastBatch = "keep") -> None:
        right = "must be the number of samples in a batch, an int >= 1"
        self.batch_size = check_int("batch_size", batch_size, 1, right)
        self.last_batch: LastBatch = check_last_batch(last_batch)
        if isinstance(sampler, (int, type)):
            check_indices("sampler", sampler, "indices")
        self.sampler = sampler
        self.carried: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batches = self.begin()
        yield from batches
        batches.commit()

    def _forget_position(self) -> None:
        self.carried = []
        self.start_at_first()

    def start_at_first(self) -> None:
        """Makes the next pass start at its first index, also if a position was loaded with another batch size."""
        self._start = 0

    def begin(self) -> BatchPass:
        """Starts an iteration that moves its last indices to the next iteration only when `commit` is called.

        A loader draws batches before it delivers them, and calls `commit` after it has delivered the last batch.
        """
        start, self._start = self._start, 0
        return BatchPass(self, start_pass(self.sampler), start)

    def order_of_batches(self) -> Sliceable | None:
        """The batches of the pass that starts now; None if the batches cannot be computed one by one."""
        order = None if self.last_batch == "rollover" else start_order(self.sampler)[0]
        if order is None:
            return None
        size, length = self.batch_size, length_of(self.sampler)
        least = size if self.last_batch == "discard" else 1

        def read(part: slice) -> list[list[Any]]:
            starts = range(part.start * size, part.stop * size, (part.step or 1) * size)
            stops = [start + size if length is None else min(start + size, length) for start in starts]
            batches = [as_list(as_keys(order[start:stop])) for start, stop in zip(starts, stops, strict=True)]
            return batches if length is not None else [batch for batch in batches if len(batch) >= least]

        return Computed(read, lambda offset: change_from(order, offset * size))

    def __len__(self) -> int:
        samples = len(self.sampler) + len(self.carried)
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size

    @short_repr
    def __repr__(self) -> str:
        last_batch = None if self.last_batch == "keep" else self.last_batch
        return call(self, describe(self.sampler), *arguments(batch_size=self.batch_size, last_batch=last_batch))

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON.

        Raises:
            TypeError: JSON cannot store an index that is moved to the next iteration.
        """
        carried = [key.item() if isinstance(key, np.generic) else key for key in self.carried]
        for key in carried:
            if not isinstance(key, _JSON_KEYS):
                raise TypeError(
                    f"the index {key!r} is carried over into the next epoch, but a state can contain only indices that "
                    "are int, str, float, bool or None; use such indices, or last_batch='keep' or 'discard'"
                )
        about = {"batch_size": self.batch_size, "last_batch": self.last_batch}
        start = {"start": self._start} if self._start else {}
        return {**about, **start, "carried": carried, "sampler": saved_pass(self.sampler)}

    def check_pass_state(self, state: Mapping[str, Any]) -> None:
        """Checks that each field fits this batch sampler."""
        for name in ("batch_size", "last_batch"):
            check_same(state, name, getattr(self, name), f"this {type(self).__name__}", PATH)
        inner = inner_state(state)
        check_saved_pass(self.sampler, inner)
        self._check_carried(state, inner)
        start, length = int_field(state, "start", path=PATH) if "start" in state else 0, length_of(self.sampler)
        if length is not None and start > length:
            raise bad_state(PATH + "start", start, f"the sampler has only {length} indices")

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Makes the next pass repeat the pass that `pass_state` described; see `load_saved_pass`."""
        self.check_pass_state(state)
        inner, carried, start = state["sampler"], list(state["carried"]), state.get("start", 0)
        indices = max(drawn * self.batch_size - len(carried), 0)
        # If the sampler skipped the drawn indices itself, the carried indices, which came first, are drawn as well.
        moved = load_saved_pass(self.sampler, inner, indices) < indices
        self.carried, self._start = [] if moved else carried, start
        return 0 if moved else drawn

    def drawn_inside(self, state: Mapping[str, Any], drawn: int) -> int:
        """How many indices of the pass of its sampler are in the first `drawn` batches of a pass."""
        return int(state.get("start", 0)) + max(drawn * self.batch_size - len(state["carried"]), 0)

    def _check_carried(self, state: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        carried = field(state, "carried", PATH)
        most = self.batch_size - 1 if self.last_batch == "rollover" else 0
        listed = isinstance(carried, list) and len(carried) <= most
        if not listed or not all(isinstance(key, _JSON_KEYS) for key in carried):
            raise bad_state(PATH + "carried", carried, f"must be a list of at most {most} indices")
        for key in carried:
            if not may_yield(self.sampler, key):
                raise bad_state(PATH + "carried", carried, f"{key!r} is no index of this {type(self.sampler).__name__}")
        here = saved_pass(self.sampler) if carried else {}
        for name in ("num_shards", "index") if carried else ():
            ours = here.get(name)  # not getattr(): a list has a method called `index`
            if inner.get(name) != ours:
                right = f"saved with {name}={inner.get(name)}, not {name}={ours}; load a state without carried indices"
                raise bad_state(PATH + "carried", carried, right)


def iterate(batch_sampler: Iterable[Any]) -> Iterator[Any]:
    """One pass over any batch sampler; for a `BatchSampler` it is a `BatchPass`, to be committed after delivery."""
    if isinstance(batch_sampler, BatchSampler) and iterating_class(batch_sampler) is BatchSampler:
        return batch_sampler.begin()
    return iter(batch_sampler)


def chained(length: int, ends: Sequence[int] | Integers, make: Callable[[int], Sliceable]) -> Computed:
    """An order that consists of several orders of ints or floats, each of which is made when it is needed.

    Args:
        length: how many elements of these orders belong to the whole order.
        ends: the offset in the whole order where each of these orders ends.
        make: a function from the number of an order to the order; its slices are arrays.
    """
    make = lru_cache(maxsize=1)(make)

    def read(part: slice) -> NDArray[Any]:
        start, stop, step = part.indices(length)
        pieces: list[NDArray[Any]] = []
        while start < stop:
            number = bisect_right(ends, start)
            first, end = int(ends[number - 1]) if number else 0, min(int(ends[number]), stop)
            piece = make(number)[start - first : end - first : step]
            pieces.append(piece if step == 1 else np.array(piece))  # a view would keep a whole order in memory
            start += len(piece) * step
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.arange(0), *pieces])

    return Computed(read)


def check_length(name: str, value: Any) -> int:
    return check_int(name, value, 0, "must be the number of samples, an int >= 0, e.g. len(dataset)")


def check_ints(name: str, values: Any, right: str, axes: tuple[int, ...] = (1,)) -> Integers:
    """Checks an argument that contains ints, and copies it into an array with one of these numbers of axes."""
    try:
        array = np.array(values, np.int64)  # a dtype is passed, since without it NumPy 1.23 only warns of a ragged list
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {right} ({error})") from None
    dtype = np.asarray(values).dtype
    if array.ndim not in axes or (array.size and dtype.kind not in "iu"):
        raise ValueError(f"{name}: {right}, not values of shape {array.shape} and dtype {dtype}")
    return array
