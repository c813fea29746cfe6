"""How an iterable dataset of any library is opened: its epoch, its shards, the iterator and the iterator's state.

NOTE [epochs of shards]: the number of the epoch comes with each call that opens a dataset or makes a shard of it, and
is set here: on the dataset before its method `shard` is called, since the shard may be a generator; and on the shard,
since a new dataset may be in epoch 0, as with Hugging Face. So a dataset that reads other datasets only remembers its
epoch in `set_epoch`, and passes it on when it opens them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from functools import partial
from operator import is_
from typing import Any, Final
from weakref import WeakSet

from .. import frameworks
from ..errors import bad_argument
from ..guests import hugging_face
from ..guests.webdataset import check_pipeline, is_pipeline, open_pipeline, url_count, url_shard
from ..messages import message
from ..state import loads_state, saves_state


@message(frozen=True, slots=True)
class Part:
    """The smallest part of a dataset that contains a shard, which is every `stride`-th sample of it from `start`."""

    dataset: Any
    start: int = 0
    stride: int = 1


def iterate(dataset: Any) -> Iterator[Any]:
    """A new iterator; datasets of tf.data yield NumPy arrays."""
    if is_pipeline(dataset):
        return open_pipeline(dataset)
    as_numpy = getattr(dataset, "as_numpy_iterator", None)
    return iter(dataset if as_numpy is None else as_numpy())


class NewestIterators:
    """The newest iterators of a dataset, by its parts and shards, to notice if it returns one of them again.

    A pickle contains no iterators.
    """

    def __init__(self) -> None:
        self._iterators: dict[Any, Iterator[Any]] = {}
        _all_newest.add(self)

    def __reduce__(self) -> Any:
        return NewestIterators, ()

    def add(self, key: Any, iterator: Iterator[Any], method: str) -> None:
        """Adds an iterator that was opened; it replaces the one with the same key.

        Raises:
            RuntimeError: `method` has returned it before, so it was read already.
        """
        known = list(self._iterators.values())
        if any(map(partial(is_, iterator), known)):  # a worker may read 10,000 shards, and opening each one comes here
            raise RuntimeError(
                f"{method} returned the same iterator again, which was read already; return a new one from each call, "
                "as a generator function does"
            )
        self._iterators[key] = iterator

    def drop_unused(self, key: Any) -> bool:
        """Drops the iterator with this key unless something else refers to it; returns whether it was dropped.

        The dataset cannot return such an iterator again, so it would only keep open what it reads.
        """
        box = [self._iterators.get(key)]
        if _references(box) > _OF_BOX + 1:  # or there is none: something refers to None
            return False
        self._iterators.pop(key, None)
        return True

    def drop_all_unused(self) -> int:
        """Returns how many iterators were dropped."""
        return sum(map(self.drop_unused, list(self._iterators)))


_all_newest: Final[WeakSet[NewestIterators]] = WeakSet()


def drop_unused_iterators() -> None:
    """Called when datasets are not read any more; see `NewestIterators.drop_unused`."""
    while sum(newest.drop_all_unused() for newest in list(_all_newest)):
        pass  # an iterator may have referred to another one


def _references(box: list[Any]) -> int:
    return sys.getrefcount(box[0])


_OF_BOX: Final = _references([object()])  # the result for an object to which only the box refers


class Opened:
    """An iterator over a dataset that was opened, and its state: its own, or that of the dataset.

    When this object is dropped, it closes the iterator, as `yield from` does.

    Args:
        name: of the dataset, for errors.
        stateful: whether to use a state.

    Attributes:
        samples: the iterator; `load` may replace it.
    """

    def __init__(self, dataset: Any, name: str, stateful: bool = True) -> None:
        self._dataset, self._name = dataset, name
        self.samples = iterate(dataset)
        self._state_owner = _state_owner(self.samples, dataset) if stateful else None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.samples)

    def __del__(self) -> None:
        if "samples" not in vars(self):  # the dataset or a signal handler has raised an error
            return
        samples, close = self.samples, getattr(self.samples, "close", None)
        is_reset = samples is self._dataset and hasattr(samples, "reset")  # it is read again in the next epoch
        if callable(close) and not is_reset:
            close()

    @property
    def stateful(self) -> bool:
        """Whether it can continue where a state was saved."""
        return self._state_owner is not None

    def state(self) -> Any:
        """The state, as JSON."""
        owner: Any = self._state_owner
        return frameworks.state_to_json(self._name, owner.state_dict())

    def load(self, state: Any) -> None:
        """Continues where this state was saved; to be called before the first sample is read."""
        if self._state_owner is None:
            raise ValueError(f"state: {self._name} has no state_dict() here, but it had one when the state was saved")
        loads: Any = self.samples if loads_state(self.samples) else self._dataset
        loads.load_state_dict(frameworks.state_from_json(state))  # a copy: some datasets keep the state and change it
        if loads is not self.samples:
            self.samples = iterate(self._dataset)
            self._state_owner = _state_owner(self.samples, self._dataset)


def _state_owner(iterator: Any, dataset: Any) -> Any:
    """The iterator or the dataset, whichever has a usable `state_dict`; None if neither has."""
    loads = loads_state(dataset)
    for owner in () if hugging_face.loses_samples(dataset) else (iterator, dataset):
        if saves_state(owner) and (loads or loads_state(owner)):
            return owner
    return None


def at_epoch(dataset: Any, epoch: int | None) -> Any:
    """The dataset in that epoch, or in its own if that is None.

    It is a copy if it has an epoch or a state, since others may read the same object. An iterator is not copied, since
    both would read the same file.
    """
    if hugging_face.is_stream(dataset):  # `copy.copy` shares all attributes, and the epoch with other processes, too
        return make_shard(dataset, 1, 0, epoch)
    if has_epoch_or_state(dataset) and not hasattr(dataset, "__next__"):
        dataset = copy.copy(dataset)
    return _set_epoch(dataset, epoch)


def has_epoch_or_state(dataset: Any) -> bool:
    """Whether the dataset can be set to an epoch or to a state."""
    return hasattr(dataset, "set_epoch") or hasattr(dataset, "load_state_dict")


def _set_epoch(dataset: Any, epoch: int | None) -> Any:
    if epoch is not None and hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    return dataset


def most_shards(dataset: Any) -> int | None:
    """The number of shards that the dataset can make at most; None if it does not say."""
    if is_pipeline(dataset):
        return url_count(dataset)
    most = getattr(dataset, "num_shards", getattr(dataset, "n_shards", None))
    return most if isinstance(most, int) else None


def has_shard(dataset: Any) -> bool:
    """Whether the dataset has a method that makes its shards; a view that reads the whole dataset does not count."""
    if is_pipeline(dataset):
        return url_count(dataset) is not None
    method = getattr(dataset, "shard", None)
    return callable(method) and not hasattr(method, "makes_view")


def make_shard(dataset: Any, num_shards: int, index: int, epoch: int | None = None) -> Any:
    """The result of the dataset's method `shard` in that epoch, which must be iterable; TypeError otherwise."""
    if is_pipeline(dataset):
        return url_shard(dataset, num_shards, index)
    if not hugging_face.is_stream(dataset):  # whose shards are new datasets in any case
        dataset = at_epoch(dataset, epoch)
    shard = dataset.shard(num_shards, index)
    if not (hasattr(shard, "__iter__") or hasattr(shard, "__getitem__")) or isinstance(shard, (set, frozenset)):
        what = f"{type(dataset).__name__}.shard({num_shards}, {index}) returned {shard!r:.80}"
        raise TypeError(f"{what}; return the samples of the shard in a fixed order: a list, a generator, a dataset")
    return _set_epoch(shard, epoch)


def part_of(dataset: Any, num_shards: int, index: int, epoch: int | None = None, cut: bool = False) -> Part:
    """The part of the dataset that contains a shard, in that epoch, as small as the dataset can make it.

    Args:
        cut: cut the shard out of the whole dataset in any case.
    """
    if cut or not has_shard(dataset):
        return Part(at_epoch(dataset, epoch), index, num_shards)
    most = most_shards(dataset)
    if most is None or most >= num_shards:
        return Part(make_shard(dataset, num_shards, index, epoch))
    most = max(most, 1)
    stride = len(range(index % most, num_shards, most))
    return Part(make_shard(dataset, most, index % most, epoch), index // most, stride)


def steps_in_shards(dataset: Any, num_shards: int) -> set[str]:
    """The steps of a dataset of Hugging Face that choose other samples if the dataset is split into so many shards."""
    if min(num_shards, most_shards(dataset) or 1) == 1:
        return set()
    return hugging_face.steps_in_shards(dataset)


def check_shards(dataset: Any, num_shards: int, has_ranks: bool) -> None:
    """Raises a ValueError if the dataset splits itself, so that samples would be lost or come twice.

    Args:
        has_ranks: the loader splits the dataset over ranks.
    """
    if is_pipeline(dataset):
        check_pipeline(dataset, num_shards, has_ranks)
    if has_ranks and hugging_face.is_split(dataset):
        right = "split_dataset_by_node and the argument ranks would both split the data; use one of them"
        raise bad_argument("dataset", dataset, right)
