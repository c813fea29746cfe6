"""How an iterable dataset of any library is opened: its epoch, its shards, the iterator and the iterator's state."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, Final

from .. import frameworks
from ..errors import bad_argument
from ..state import loads_state, saves_state
from .webdatasets import check_pipeline, is_pipeline, open_pipeline, url_count, url_shard

_SPLIT_STEPS: Final = {"TakeExamplesIterable": "take", "SkipExamplesIterable": "skip"}  # classes of Hugging Face


@dataclass(frozen=True, slots=True)
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


class Opened:
    """An iterator over a dataset that was opened, and its state: its own, or that of the dataset.

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
    for owner in () if _loses_samples(dataset) else (iterator, dataset):
        if saves_state(owner) and (loads or loads_state(owner)):
            return owner
    return None


def _loses_samples(dataset: Any) -> bool:
    """Whether it is a Hugging Face dataset with a shuffle buffer, whose samples are lost at `load_state_dict`."""
    parts = [getattr(dataset, "_ex_iterable", None)]
    while parts:
        part = parts.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        parts += [inner for inner in (getattr(part, "ex_iterable", None), *getattr(part, "ex_iterables", ())) if inner]
    return False


def at_epoch(dataset: Any, epoch: int) -> Any:
    """The dataset in that epoch; a copy if it has an epoch or a state, since others may read the same object."""
    if hasattr(dataset, "set_epoch") or hasattr(dataset, "load_state_dict"):
        dataset = copy.copy(dataset)
    if hasattr(dataset, "set_epoch"):
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


def make_shard(dataset: Any, num_shards: int, index: int) -> Any:
    """The result of the dataset's method `shard`, which must be iterable; TypeError otherwise."""
    shard = url_shard(dataset, num_shards, index) if is_pipeline(dataset) else dataset.shard(num_shards, index)
    if not (hasattr(shard, "__iter__") or hasattr(shard, "__getitem__")) or isinstance(shard, (set, frozenset)):
        what = f"{type(dataset).__name__}.shard({num_shards}, {index}) returned {shard!r:.80}"
        raise TypeError(f"{what}; return the samples of the shard in a fixed order: a list, a generator, a dataset")
    return shard


def check_unread(method: str, iterator: Iterator[Any], others: Iterable[Any]) -> None:
    """Raises a RuntimeError if `method` returned one of the iterators `others`, which were read before."""
    if any(map(partial(is_, iterator), others)):  # a worker may read 10,000 shards, and opening each one comes here
        raise RuntimeError(
            f"{method} returned the same iterator again, which was read already; return a new one from each call, as a "
            "generator function does"
        )


def part_of(dataset: Any, num_shards: int, index: int) -> Part:
    """The part of the dataset that contains a shard, as small as the dataset can make it."""
    if not has_shard(dataset):
        return Part(dataset, index, num_shards)
    most = most_shards(dataset)
    if most is None or most >= num_shards:
        return Part(make_shard(dataset, num_shards, index))
    most = max(most, 1)
    stride = len(range(index % most, num_shards, most))
    return Part(make_shard(dataset, most, index % most), index // most, stride)


def steps_in_shards(dataset: Any, num_shards: int) -> set[str]:
    """The steps of a dataset of Hugging Face that choose other samples if the dataset is split into so many shards.

    Hugging Face applies these steps to each shard separately. For example, `interleave_datasets` ends in each shard
    when its first dataset ends there.
    """
    found, left = set[str](), [getattr(dataset, "_ex_iterable", None)]
    if min(num_shards, most_shards(dataset) or 1) == 1:
        return found
    while left:
        step = left.pop()
        if step is None:
            continue
        name, strategy = type(step).__name__, getattr(step, "stopping_strategy", "")
        if name.endswith("CyclingMultiSourcesExamplesIterable") and strategy != "all_exhausted_without_replacement":
            found.add("interleave_datasets")
        elif name in _SPLIT_STEPS and getattr(step, "split_when_sharding", True):
            found.add(_SPLIT_STEPS[name])
        left += [getattr(step, "ex_iterable", None), *getattr(step, "ex_iterables", ())]
    return found


def check_shards(dataset: Any, num_shards: int, has_ranks: bool) -> None:
    """Raises a ValueError if the dataset splits itself, so that samples would be lost or come twice.

    Args:
        has_ranks: the loader splits the dataset over ranks.
    """
    if is_pipeline(dataset):
        check_pipeline(dataset, num_shards, has_ranks)
    if has_ranks and getattr(dataset, "_distributed", None) is not None:  # of Hugging Face
        right = "split_dataset_by_node and the argument ranks would both split the data; use one of them"
        raise bad_argument("dataset", dataset, right)
