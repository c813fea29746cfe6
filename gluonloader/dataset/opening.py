"""How an iterable dataset of any library is opened: its epoch, its shards, its iterator."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any


def iterate(dataset: Any) -> Iterator[Any]:
    """A new iterator; datasets of tf.data yield NumPy arrays."""
    as_numpy = getattr(dataset, "as_numpy_iterator", None)
    return iter(dataset if as_numpy is None else as_numpy())


def at_epoch(dataset: Any, epoch: int) -> Any:
    """The dataset in that epoch; a copy if it has an epoch or a state, since others may read the same object."""
    if hasattr(dataset, "set_epoch") or hasattr(dataset, "load_state_dict"):
        dataset = copy.copy(dataset)
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    return dataset


def most_shards(dataset: Any) -> int | None:
    """The number of shards that the dataset can make at most; None if it does not say."""
    most = getattr(dataset, "num_shards", getattr(dataset, "n_shards", None))
    return most if isinstance(most, int) else None


def make_shard(dataset: Any, num_shards: int, index: int) -> Any:
    """The result of the dataset's method `shard`, which must be iterable; TypeError otherwise."""
    shard = dataset.shard(num_shards, index)
    if not (hasattr(shard, "__iter__") or hasattr(shard, "__getitem__")) or isinstance(shard, (set, frozenset)):
        what = f"{type(dataset).__name__}.shard({num_shards}, {index}) returned {shard!r:.80}"
        raise TypeError(f"{what}; return the samples of the shard in a fixed order: a list, a generator, a dataset")
    return shard


def check_unread(method: str, iterator: Iterator[Any], others: Iterable[Any]) -> None:
    """Raises a RuntimeError if `method` returned one of the iterators `others`, which were read before."""
    if any(iterator is other for other in others):
        raise RuntimeError(
            f"{method} returned the same iterator again, which was read already; return a new one from each call, as a "
            "generator function does"
        )
