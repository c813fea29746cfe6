"""What samplers are made of: orders, passes over them, batches, and positions in all of these.

A pass is the iterator of one epoch. A pass of ours knows its order by position, so it is put anywhere without drawing.

What a pass depends on is a *pass state*, JSON that does not grow with the number of samples:

    state = sampler.pass_state()                    just before a pass begins
    left = sampler.load_pass_state(state, drawn)    the next pass is that one, `drawn` of it were had; skip `left` more
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import LastBatch, check_int, check_last_batch
from ..declared import IN_MEMORY
from ..errors import bad_state, explain_torch_arguments
from ..indices import Keys, as_list, is_int_array
from ..randomness import batch_seed, draw_seed
from ..state import check_same, field, has_state, int_field

__all__ = [
    "BatchPass",
    "BatchSampler",
    "OrderedSampler",
    "Pass",
    "Sampler",
    "SeededSampler",
    "Sliceable",
    "as_keys",
    "begin_order",
    "cut",
    "digest",
    "inner_state",
    "iterate",
    "join_keys",
    "knows_epoch",
    "load_saved_pass",
    "refreshed",
    "saved_pass",
    "skip",
]

PATH: Final = "sampler."  # where pass states lie in the state of a loader
_BLOCK: Final = 4096
_FIXED: Final = (list, tuple, range, *IN_MEMORY)  # the same in each epoch
_PLAIN: Final = (int, str, float, bool, type(None))  # keys that JSON keeps


class SizedIterable(Protocol):
    """What a sampler has to offer: any sized iterable is one, a plain list too."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Sliceable(Protocol):
    """An order: `order[start:stop:step]` are the keys at these positions, as a list, range or array."""

    def __getitem__(self, part: slice, /) -> Any: ...


def digest(array: NDArray[Any]) -> str:
    """A hash of what an array holds, 32 hexadecimal digits: what a state keeps in its place."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return hashlib.blake2b(little.tobytes(), digest_size=16).hexdigest()


class Sampler:
    """Base of samplers: `__iter__` yields indices (any hashable keys), `__len__` says how many.

    Deriving from it is optional: a loader takes any sized iterable. `Dataset.sample` takes one too.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")


class Pass(Iterator[Any]):
    """One pass over an order.

    Args:
        order: the keys by position.
        length: how many there are.
        ahead: how many are read from `order` at once, at least; 0 if nothing may be drawn before it is taken.

    >>> numbers = Pass(range(10), 10)
    >>> numbers.cut(3), next(numbers)
    (array([0, 1, 2]), 3)
    >>> numbers.skip(4); numbers.cut(5)
    array([8, 9])
    """

    def __init__(self, order: Sliceable, length: int, ahead: int = _BLOCK) -> None:
        self._order, self._length, self._ahead = order, length, ahead
        self._block: Keys = []  # read from position _start on, given up to _at
        self._listed: list[Any] | None = None  # the same
        self._start, self._at = 0, 0

    def __next__(self) -> Any:
        if self._at == len(self._block):
            self._read(1)
            if not len(self._block):
                raise StopIteration
        if self._listed is None:
            self._listed = as_list(self._block)
        self._at += 1
        return self._listed[self._at - 1]

    def cut(self, count: int) -> Keys:
        """The next keys, fewer than `count` only at the end; an array if the order is one of ints."""
        if self._at + count > len(self._block):
            self._read(count)
        keys = self._block[self._at : self._at + count]
        self._at += len(keys)
        return keys

    def _read(self, count: int) -> None:
        """Has the block begin at the next key, and hold `count` if there are so many."""
        rest = self._block[self._at :]
        start, first = self._start + self._at, self._start + len(self._block)
        stop = min(max(start + count, first + self._ahead), self._length)
        more = as_keys(self._order[first:stop]) if first < stop else rest[:0]
        self._block = join_keys(rest, more) if len(rest) else more
        self._start, self._at, self._listed = start, 0, None

    def skip(self, count: int) -> None:
        """Moves on by `count`, at most to the end, without reading."""
        if self._at + count <= len(self._block):
            self._at += count
        else:
            self.seek(self._start + self._at + count)

    def seek(self, position: int) -> None:
        """The next key is the one at `position`; what was read ahead is read anew."""
        self._start, self._at, self._block, self._listed = min(position, self._length), 0, [], None


def as_keys(part: Any) -> Keys:
    """A part of an order: an array where it is one of ints, which nobody is to write to, else a list."""
    if type(part) is range and (not part or -(2**63) <= min(part[0], part[-1]) <= max(part[0], part[-1]) < 2**63):
        return np.arange(part.start, part.stop, part.step, dtype=np.int64)
    if is_int_array(part) and np.can_cast(part.dtype, np.int64):
        keys: NDArray[np.int64] = np.array(part, np.int64)  # a copy: it may be the user's, who writes to it
        keys.flags.writeable = False
        return keys
    return as_list(part)


def join_keys(first: Keys, second: Keys) -> Keys:
    """One after the other."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second])
    return as_list(first) + as_list(second)


def cut(iterator: Iterator[Any], count: int) -> Keys:
    """The next keys of any iterator, fewer than `count` only at its end."""
    return iterator.cut(count) if isinstance(iterator, Pass) else list(islice(iterator, count))


def skip(iterator: Iterator[Any], count: int) -> None:
    """Moves any iterator on by `count`: a pass of ours without reading, others by drawing."""
    if isinstance(iterator, (Pass, BatchPass)):
        iterator.skip(count)
    else:
        next(islice(iterator, count, count), None)


class OrderedSampler(Sampler):
    """Base of samplers whose order is known by position."""

    _ahead = _BLOCK
    live: tuple[str, ...] = ()  # fields of the pass state that may change in the middle of a pass

    def _order(self) -> Sliceable:
        """The order of the pass that begins now."""
        raise NotImplementedError(f"{type(self).__name__} must define _order")

    def __iter__(self) -> Iterator[Any]:
        return Pass(self._order(), len(self), self._ahead)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON."""
        return {"length": len(self)}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Has the next pass be the one that `state` was saved of, `drawn` keys of which were had.

        Returns:
            how many keys of the next pass are still to be skipped.

        Raises:
            ValueError: the state does not fit; it names the field, and nothing has changed.
        """
        self._check_state(state)
        return drawn

    def _check_state(self, state: Mapping[str, Any], *free: str) -> None:
        for name, ours in self.pass_state().items():
            if name not in free:
                check_same(state, name, ours, f"the {type(self).__name__} here", PATH)


def begin_order(sampler: Any) -> tuple[Sliceable | None, int]:
    """The order of a sampler's pass that begins now, and how far to read ahead in it; None if it only iterates."""
    if type(sampler) in _FIXED:
        return list(sampler) if isinstance(sampler, np.ndarray) and not is_int_array(sampler) else sampler, _BLOCK
    if isinstance(sampler, OrderedSampler) and type(sampler).__iter__ is OrderedSampler.__iter__:
        return sampler._order(), sampler._ahead
    return None, 0


class SeededSampler(OrderedSampler):
    """Base of samplers that shuffle: the order is a function of (seed, epoch), each iteration is the next epoch.

    Args:
        seed: an int; None draws one from NumPy's global generator now.
        draws: whether the order depends on it.

    Attributes:
        adopts: whether a position that is loaded brings its seed along, since none was given.
    """

    def __init__(self, seed: int | None, draws: bool = True) -> None:
        self.adopts = draws and seed is None
        self._seed = draw_seed() if self.adopts else check_int("seed", 0 if seed is None else seed, None)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives the order of this epoch."""
        self._epoch = int(epoch)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch - 1

    def _next_key(self) -> int:
        """The key of the pass that begins now, 64 bits."""
        return batch_seed(self._seed, self._next_epoch())

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "seed": self._seed, "epoch": self._epoch}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        seed, epoch = int_field(state, "seed", None, PATH), int_field(state, "epoch", path=PATH)
        self._check_state(state, "epoch", *(["seed"] if self.adopts else []))
        self._seed, self._epoch = seed, epoch
        return drawn


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

    @explain_torch_arguments(drop_last='give last_batch="discard"')
    def __init__(self, sampler: SizedIterable, batch_size: int, last_batch: LastBatch = "keep") -> None:
        right = "give the number of samples in a batch, an int >= 1"
        self.batch_size = check_int("batch_size", batch_size, 1, right)
        self.last_batch: LastBatch = check_last_batch(last_batch)
        self.sampler = sampler
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.sampler).__name__} by {self.batch_size})"

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON.

        Raises:
            TypeError: an index that is carried over is nothing that JSON keeps.
        """
        carried = [key.item() if isinstance(key, np.generic) else key for key in self.carried]
        for key in carried:
            if not isinstance(key, _PLAIN):
                raise TypeError(
                    f"the index {key!r} is carried over into the next epoch, and a position keeps only indices that "
                    "are int, str, float, bool or None; use such, or last_batch='keep' or 'discard'"
                )
        about = {"batch_size": self.batch_size, "last_batch": self.last_batch}
        return {**about, "carried": carried, "sampler": saved_pass(self.sampler)}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Has the next pass be the one that `state` was saved of, `drawn` batches of which were had.

        Returns:
            how many batches of the next pass are still to be skipped.

        Raises:
            ValueError: the state does not fit; it names the field, and nothing has changed.
        """
        for name in ("batch_size", "last_batch"):
            check_same(state, name, getattr(self, name), f"the {type(self).__name__} here", PATH)
        inner = inner_state(state)
        carried = self._check_carried(state, inner)
        indices = max(drawn * self.batch_size - len(carried), 0)
        moved = load_saved_pass(self.sampler, inner, indices) < indices  # then what was carried is behind it, too
        self.carried = [] if moved else carried
        return 0 if moved else drawn

    def _check_carried(self, state: Mapping[str, Any], inner: Mapping[str, Any]) -> list[Any]:
        carried = field(state, "carried", PATH)
        most = self.batch_size - 1 if self.last_batch == "rollover" else 0
        if not isinstance(carried, list) or len(carried) > most or not all(isinstance(key, _PLAIN) for key in carried):
            raise bad_state(PATH + "carried", carried, f"has to be a list of at most {most} indices")
        here = saved_pass(self.sampler) if carried else {}
        for name in ("num_shards", "index") if carried else ():
            ours = here.get(name)  # and not an attribute: a list has an `index`, too
            if inner.get(name) != ours:
                right = f"carried over by {name}={inner.get(name)}, and here it is {ours}; load a position without any"
                raise bad_state(PATH + "carried", carried, right)
        return list(carried)


class BatchPass(Iterator[list[Any]]):
    """One pass over a `BatchSampler`; `commit` stores what it carries over into the next pass.

    Attributes:
        drawn: number of the next batch in this pass.
    """

    def __init__(self, batches: BatchSampler) -> None:
        self._batches = batches
        self._first = list(batches.carried)
        self._carried = self._first
        self._rest: list[Any] = []
        order, ahead = begin_order(batches.sampler)
        known = None if order is None else Pass(order, len(batches.sampler), ahead)
        self._indices: Iterator[Any] = iter(batches.sampler) if known is None else known
        self.drawn = 0

    def __next__(self) -> list[Any]:
        return as_list(self.cut())

    def cut(self) -> Keys:
        """The next batch, an array where the sampler gives its indices so.

        Raises:
            StopIteration: there is none.
        """
        size, last_batch = self._batches.batch_size, self._batches.last_batch
        batch = cut(self._indices, size - len(self._carried))
        if self._carried:
            batch, self._carried = self._carried + as_list(batch), []
        if len(batch) == size or (len(batch) and last_batch == "keep"):
            self.drawn += 1
            return batch
        if last_batch == "rollover":
            self._rest += as_list(batch)
        raise StopIteration

    def skip(self, batches: int) -> None:
        """Moves on by so many batches, which have to be there: without reading, for a sampler of ours."""
        if batches:
            skip(self._indices, batches * self._batches.batch_size - len(self._carried))
            self._carried = []
            self.drawn += batches

    def seek(self, number: int) -> None:
        """The next batch is the one with this number in this pass; what a live sampler gives is drawn anew.

        Raises:
            TypeError: the sampler is not ours, so it cannot go back.
        """
        if not isinstance(self._indices, Pass):
            raise TypeError(
                f"a {type(self._batches.sampler).__name__} cannot be put back to an earlier position; "
                "give it state_dict() and load_state_dict(), or use a sampler of gluonloader"
            )
        self._indices.seek(max(number * self._batches.batch_size - len(self._first), 0))
        self._carried, self._rest, self.drawn = [] if number else self._first, [], number

    def commit(self) -> None:
        """The pass was used to its end: what it left over starts the next one."""
        if self._batches.last_batch == "rollover":
            self._batches.carried = self._rest


def iterate(batch_sampler: Iterable[Any]) -> Iterator[Any]:
    """One pass over any batch sampler; ours commits its carry later, on delivery."""
    ours = getattr(type(batch_sampler), "__iter__", None) is BatchSampler.__iter__  # and not a subclass's own
    return batch_sampler.begin() if ours and isinstance(batch_sampler, BatchSampler) else iter(batch_sampler)


def saved_pass(sampler: Any) -> dict[str, Any]:
    """What the next pass of any sampler depends on, as far as it can say."""
    saved: dict[str, Any] = {"kind": type(sampler).__name__}
    if hasattr(sampler, "pass_state"):
        saved |= sampler.pass_state()
    elif isinstance(sampler, _FIXED):
        saved["length"] = len(sampler)
    elif _counts_epochs(sampler):
        saved["epoch"] = sampler.epoch
    return saved


def load_saved_pass(sampler: Any, state: Mapping[str, Any], drawn: int) -> int:
    """Has the next pass of any sampler be the one that `saved_pass` was taken of; see `load_pass_state`."""
    whose = "the sampler here"
    check_same(state, "kind", type(sampler).__name__, whose, PATH)
    if hasattr(sampler, "load_pass_state"):
        return int(sampler.load_pass_state({key: state[key] for key in state if key != "kind"}, drawn))
    if isinstance(sampler, _FIXED):
        check_same(state, "length", len(sampler), whose, PATH)
    elif _counts_epochs(sampler):
        sampler.set_epoch(int_field(state, "epoch", path=PATH))
    return drawn


def inner_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The field that is the pass state of a sampler within this one."""
    inner = field(state, "sampler", PATH)
    if not isinstance(inner, Mapping):
        raise bad_state(PATH + "sampler", inner, "has to be a dict")
    return inner


def refreshed(sampler: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """A pass state that was taken when the pass began, with what has changed since: weights."""
    now = dict(state)
    if "sampler" in now:
        now["sampler"] = refreshed(sampler.sampler, now["sampler"])
    live = getattr(sampler, "live", ())
    return {**now, **{name: value for name, value in sampler.pass_state().items() if name in live}} if live else now


def knows_epoch(sampler: Any) -> bool:
    """Whether a position that is loaded puts it into its epoch; any other has to be told which, if it matters."""
    known = isinstance(sampler, _FIXED) or hasattr(sampler, "pass_state")
    return known or has_state(sampler) or _counts_epochs(sampler)


def _counts_epochs(sampler: Any) -> bool:
    epoch = getattr(sampler, "epoch", None)
    return hasattr(sampler, "set_epoch") and isinstance(epoch, int) and not isinstance(epoch, bool)
