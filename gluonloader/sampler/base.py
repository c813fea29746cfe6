"""What samplers have in common, and `BatchSampler`, which cuts the indices of any sampler into batches.

Sampler, OrderedSampler, SeededSampler    base classes: all samplers, samplers with a known order, those that shuffle
RearrangedSampler                         base class of samplers that rearrange the order of another one
BatchSampler                              lists of indices
order_of, start_order, start_pass         the order of any sampler: of an epoch, or of the pass that starts now
epoch_of, move_to, keep_epochs            the epochs of gluonloader's samplers in any sampler
copy_of                                   a copy to look at what follows
is_computed, iterating_class, may_yield   what is known of any sampler
unseeded, changes_of                      what is known of gluonloader's samplers in any sampler
chained                                   an order of several arrays
check_length, check_ints, check_orders_documents
                                          checks of arguments
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import LastBatch, check_indices, check_int, check_last_batch
from ..describe import arguments, call, describe, short_repr, sized
from ..errors import bad_argument, explain_arguments
from ..indices import as_list, is_int_array
from ..randomness import batch_seed, checked_seed
from ..state import check_same, int_field, seed_field
from .passes import READ_AHEAD, BatchPass, Computed, Integers, Order, Pass, as_keys, change_from, length_of, saved_of
from .saved import FIXED, PATH, chain_of, inner_state, loading_order, nothing, saved_order


class SizedIterable(Protocol):
    """What a loader requires of a sampler; a list is sufficient."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Sampler:
    """Base class of samplers; in a subclass, `__iter__` yields indices (any hashable keys), `__len__` is their number.

    Deriving from it is optional: a loader accepts any iterable with a length, and `Dataset.sample` any iterable.
    """

    _yields_batches = False  # it yields lists of indices

    def _may_yield(self, key: Any) -> bool:
        """Whether a pass may yield this key; True if only the pass would tell."""
        return True

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    __repr__ = short_repr(sized)


class OrderedSampler(Sampler):
    """Base class of samplers whose order is a value: `order(epoch)` can be sliced, and nothing changes by that.

    A subclass defines `order`, or `_indices`, an order that is the same in each epoch; and what must be equal for a
    position in the order to be loaded.
    """

    _indices: Sequence[Any] | Integers
    _identity: Mapping[str, Any] = {}  # arguments that the order depends on, as JSON
    _read_ahead = READ_AHEAD

    @property
    def random_over(self) -> Any:
        """The indices, an array or a range, of which each part of a pass contains a random choice; None otherwise."""
        return None

    def order(self, epoch: int) -> Order:
        """The order of an epoch: a function of the arguments, the epoch, and what the user has set since."""
        return self._indices

    def reading(self, epoch: int) -> Order:
        """The order of an epoch for a pass that starts now; `stats` of a sampler counts what such a pass plans."""
        return self.order(epoch)

    def __iter__(self) -> Iterator[Any]:
        epoch = epoch_of(self)
        order = self.reading(epoch)
        move_to(self, epoch + 1)
        return Pass(order, length_of(self), self._read_ahead)

    def __len__(self) -> int:
        return len(self._indices)

    def identity(self) -> dict[str, Any]:
        """What must be equal where a position in the order is loaded, as JSON."""
        return {"length": len(self), **self._identity}

    def order_state(self, epoch: int, order: Order | None, offset: int) -> dict[str, Any]:
        """What a position in the order of an epoch contains; `order` is None if a subclass iterates by itself."""
        return {**self.identity(), **saved_of(self.order(epoch) if order is None else order, offset)}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        """Checks what `order_state` has returned; returns a function that makes the next pass one over that order."""
        for name, ours in self.identity().items():
            check_same(state, name, ours, f"this {type(self).__name__}", PATH)
        return nothing

    def check_fits(self, dataset: Any, ranks: int) -> None:
        """Called by a loader: raises a ValueError if the order was made for another dataset.

        Args:
            ranks: how many divide the order; 1 if nothing does.
        """

    def _may_yield(self, key: Any) -> bool:
        indices = getattr(self, "_indices", None)
        return indices is None or iterating_class(self) is not OrderedSampler or _contains(indices, key)


def iterating_class(sampler: Any) -> type | None:
    """The class whose `__iter__` a sampler has: a class of gluonloader, unless a subclass of the user overrides it."""
    for kind in type(sampler).__mro__:
        if "__iter__" in kind.__dict__:
            return kind
    return None


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


class SeededSampler(OrderedSampler):
    """Base class of samplers that shuffle: the order depends only on (seed, epoch); each iteration is the next epoch.

    Args:
        seed: an int; None draws one from NumPy's global generator now.
        draws: whether the order depends on the seed.

    Attributes:
        seed: see above.
        epoch: the epoch of the next iteration.
    """

    def __init__(self, seed: int | None, draws: bool = True) -> None:
        self.adopts = draws and seed is None  # whether a loaded position replaces the seed
        self.seed = checked_seed(0 if seed is None and not draws else seed)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        self.epoch = int(epoch)

    def epoch_seed(self, epoch: int) -> int:
        """64 bits from which the order of an epoch is computed."""
        return batch_seed(self.seed, epoch)

    def identity(self) -> dict[str, Any]:
        return super().identity() if self.adopts else {**super().identity(), "seed": self.seed}

    def order_state(self, epoch: int, order: Order | None, offset: int) -> dict[str, Any]:
        return {**super().order_state(epoch, order, offset), "seed": self.seed, "epoch": epoch}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        super().loading(state)
        seed, epoch = seed_field(state, PATH), int_field(state, "epoch", path=PATH)

        def load() -> None:
            self.seed, self.epoch = seed, epoch

        return load


def epoch_of(sampler: Any, otherwise: int = 0) -> int:
    """The epoch of the next pass over any sampler; `otherwise` if it does not count them as those of gluonloader do."""
    return next((part.epoch for part in chain_of(sampler) if isinstance(part, SeededSampler)), otherwise)


def move_to(sampler: Any, epoch: int) -> None:
    """Sets the epoch of those of gluonloader's samplers in a sampler that count epochs."""
    for part in chain_of(sampler):
        if isinstance(part, SeededSampler):
            part.epoch = epoch


def unseeded(sampler: Any) -> Any:
    """The sampler in any sampler that has drawn its seed at random, if there is one."""
    return next((part for part in chain_of(sampler) if getattr(part, "adopts", False)), None)


def changes_of(sampler: Any) -> int:
    """How often the user has changed what an order depends on, such as weights; see `WeightedSampler.changes`."""
    return sum(getattr(part, "changes", 0) for part in chain_of(sampler))


def is_computed(sampler: Any) -> bool:
    """Whether the order of any epoch can be computed: this is a sampler of gluonloader, and so are those in it."""
    if type(sampler) in FIXED:
        return True
    return iterating_class(sampler) is OrderedSampler or (_rearranges(sampler) and is_computed(sampler.sampler))


def _rearranges(sampler: Any) -> bool:
    """Whether the order of a sampler is that of the sampler in it, rearranged: it is a `BatchSampler`, for example."""
    return isinstance(sampler, RearrangedSampler) and "rearranged" in vars(iterating_class(sampler))


def order_of(sampler: Any, epoch: int, reads: bool = False) -> Order | None:
    """The order of any sampler in an epoch; None if its order cannot be computed part by part.

    Args:
        reads: whether a pass over it starts now; see `OrderedSampler.reading`.
    """
    if type(sampler) in FIXED:
        return list(sampler) if isinstance(sampler, np.ndarray) and not is_int_array(sampler) else sampler
    if iterating_class(sampler) is OrderedSampler:
        order: Order = sampler.reading(epoch) if reads else sampler.order(epoch)
        return order
    inner = order_of(sampler.sampler, epoch, reads) if _rearranges(sampler) else None
    return None if inner is None else sampler.rearranged(inner)


def start_order(sampler: Any) -> Order | None:
    """The order of the pass that starts now, so that the epoch of the sampler counts on; None as for `order_of`."""
    epoch = epoch_of(sampler)
    order = order_of(sampler, epoch, reads=True)
    if order is not None:
        move_to(sampler, epoch + 1)
    return order


def start_pass(sampler: Any) -> Iterator[Any]:
    """One pass over any sampler of indices."""
    order = start_order(sampler)
    return iter(sampler) if order is None else Pass(order, length_of(sampler), read_ahead_of(sampler))


def read_ahead_of(sampler: Any) -> int:
    """How many keys of its order are read at once."""
    if isinstance(sampler, BatchSampler):
        return 0
    return read_ahead_of(sampler.sampler) if _rearranges(sampler) else getattr(sampler, "_read_ahead", READ_AHEAD)


def copy_of(sampler: Any) -> Any:
    """A copy of a computed sampler, and of those in it; what is done with the copy changes nothing here."""
    if type(sampler) in FIXED:
        return sampler
    new = copy.copy(sampler)
    if hasattr(new, "sampler"):
        new.sampler = copy_of(new.sampler)
    return new


def keep_epochs(sampler: Any) -> Callable[[], None]:
    """Saves the epochs of a sampler and those in it; returns a function that restores them."""
    kept = [(part, part.epoch) for part in chain_of(sampler) if isinstance(part, SeededSampler)]

    def restore() -> None:
        for part, epoch in kept:
            part.epoch = epoch

    return restore


class RearrangedSampler(Sampler):
    """Base class of samplers that rearrange the order of another sampler, which is the attribute `sampler`.

    A subclass defines `rearranged`, and names the attributes that must be equal for a position to be loaded.
    """

    sampler: Any
    _identifying: tuple[str, ...]

    def order_state(self, epoch: int, order: Order | None, offset: int) -> dict[str, Any]:
        """What a position contains if the keys of this sampler are the order that is read."""
        inner = saved_order(self.sampler, epoch, order_of(self.sampler, epoch), 0)
        return {**{name: getattr(self, name) for name in self._identifying}, "sampler": inner}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        """Checks what `order_state` has returned; returns a function that makes the next pass one over that order."""
        for name in self._identifying:
            check_same(state, name, getattr(self, name), f"this {type(self).__name__}", PATH)
        return loading_order(self.sampler, inner_state(state))


class BatchSampler(RearrangedSampler):
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

    _identifying = "batch_size", "last_batch"
    _yields_batches = True

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

    def begin(self) -> BatchPass:
        """Starts an iteration that moves its last indices to the next iteration only when `commit` is called.

        A loader draws batches before it delivers them, and calls `commit` after it has delivered the last batch.
        """
        return BatchPass(self, start_pass(self.sampler), self.carried, self.batch_size, self.last_batch)

    def rearranged(self, order: Order) -> Order | None:
        """The batches of an order; None if the batches of an epoch depend on the epoch before it."""
        if self.last_batch == "rollover":
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
        return self.count(len(self.carried))

    def count(self, carried: int) -> int:
        """The number of batches of an iteration that starts with so many moved indices."""
        samples = len(self.sampler) + carried
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size

    @short_repr
    def __repr__(self) -> str:
        last_batch = None if self.last_batch == "keep" else self.last_batch
        return call(self, describe(self.sampler), *arguments(batch_size=self.batch_size, last_batch=last_batch))


def iterate(batch_sampler: Iterable[Any]) -> Iterator[Any]:
    """One pass over any batch sampler; for a `BatchSampler` it is a `BatchPass`, to be committed after delivery."""
    if isinstance(batch_sampler, BatchSampler) and iterating_class(batch_sampler) is BatchSampler:
        return batch_sampler.begin()
    return iter(batch_sampler)


def check_orders_documents(name: str, sampler: Any) -> None:
    """Checks an argument that sets the order of documents, which has to stay the same while an epoch runs.

    Raises:
        ValueError: its order cannot be computed part by part, or may change.
    """
    if type(sampler) not in FIXED and iterating_class(sampler) is not OrderedSampler:
        right = "it must be a sampler of gluonloader, or a list, range or array of indices"
        if _rearranges(sampler):
            right += "; to divide samples among ranks, pass ranks to the loader instead"
        raise bad_argument(name, sampler, right)
    if getattr(sampler, "draws_by_current_weights", False):
        right = "its weights may change while an epoch runs; pass replacement=False to it, or use a MixtureSampler"
        raise bad_argument(name, sampler, right)


def chained(length: int, ends: Sequence[int] | Integers, make: Callable[[int], Order]) -> Computed:
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
