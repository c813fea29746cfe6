"""Checks the arguments of `DataLoader` that decide which samples make which batch; for an iterable dataset, see also
shards.py.

Every check raises a ValueError that names the argument, its value and what to pass instead.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..checks import LastBatch, check_indices, cure_of
from ..dataset.arrays import warn_of_columns
from ..dataset.base import check_awaited
from ..dataset.bulk import check_no_mask
from ..dataset.iterable import is_iterable
from ..errors import bad_argument, warn
from ..loading.among_ranks import Comparison, dividing_argument, part_of_rank, ranks_of, refuse_unseeded
from ..loading.index_source import IndexSource
from ..loading.random_order import check_random_order
from ..messages import message
from ..ranks import Ranks
from ..sampler.base import BatchSampler, OrderedSampler
from ..sampler.ordered import SequentialSampler
from ..sampler.passes import length_of
from ..sampler.saved import chain_of
from ..sampler.sharded import ShardedSampler
from ..sampler.shuffled import RandomSampler


@message(frozen=True, slots=True)
class Batching:
    """The arguments of `DataLoader` that decide which samples make which batch."""

    batch_size: int | None
    shuffle: bool
    sampler: Any
    last_batch: LastBatch | None
    batch_sampler: Any
    ranks: Any

    @property
    def is_made_here(self) -> bool:
        """Whether the loader makes the order, of all samples of the dataset."""
        return self.sampler is None and self.batch_sampler is None


def choose_batches(dataset: Any, batching: Batching, seed: int, seed_given: bool) -> IndexSource:
    """The source of tasks of a dataset that is not iterable."""
    warn_of_columns("dataset", dataset)
    orders = {name: _as_sampler(name, getattr(batching, name)) for name in ("sampler", "batch_sampler")}
    is_made_here, batching = batching.is_made_here, replace(batching, **orders)
    divided = None if batching.ranks is None else _ranks_of_order(dataset, batching, seed_given)
    batches = _batch_sampler(dataset, batching, seed, seed_given, divided)
    check_random_order(dataset, batching.shuffle, batching.sampler, batching.batch_sampler)
    samplers = chain_of(batches)
    for sampler in samplers:
        if isinstance(sampler, OrderedSampler):
            sampler.check_fits(dataset, 1 if divided is None else divided.count)
    comparison = None
    if divided is not None and divided.gather is not None and divided.count > 1:
        comparison = _comparison(dataset, batching, batches, divided, seed if seed_given else None)
    return IndexSource(batches, None, len(samplers[-1]) if is_made_here else None, comparison)


def _as_sampler(name: str, sampler: Any) -> Any:
    """A function of the epoch as a sampler; anything else stays as it is."""
    iterates = isinstance(sampler, type) or hasattr(sampler, "__iter__") or hasattr(sampler, "__getitem__")
    if iterates or not callable(sampler):
        return sampler
    from ..sampler.function import FunctionSampler

    return FunctionSampler(name, sampler)


def _ranks_of_order(dataset: Any, batching: Batching, seed_given: bool) -> Ranks:
    """The ranks that divide the order of a dataset with `__getitem__`."""
    if divides := dividing_argument(batching.sampler, batching.batch_sampler):
        right = f"{divides} already divides the samples among the ranks; remove one of them: remove ranks, or pass "
        raise bad_argument("ranks", batching.ranks, right + "shuffle=True or a sampler that yields the whole order")
    ranks = ranks_of(batching.ranks, "repeat")
    if ranks.shard_lengths is not None:
        right = f"only iterable datasets are read in shards, and {type(dataset).__name__} is not; remove shard_lengths"
        raise bad_argument("shard_lengths", ranks.shard_lengths, right)
    if batching.shuffle and not seed_given:
        refuse_unseeded(batching.ranks)
    return ranks


def _comparison(dataset: Any, batching: Batching, batches: Any, ranks: Ranks, seed: int | None) -> Comparison:
    share = batches if isinstance(batches, ShardedSampler) else batches.sampler
    name = next((name for name in ("sampler", "batch_sampler") if getattr(batching, name) is not None), "dataset")
    facts = {f"len({name})": length_of(share.sampler), "batch_size": batching.batch_size, "seed": seed}
    return Comparison(ranks, share.sampler, dataset, facts)


def _batch_sampler(dataset: Any, batching: Batching, seed: int, seed_given: bool, ranks: Ranks | None) -> Any:
    """The batches of this process; `ranks`: those that divide the batches, or None."""
    batch_size, sampler, last_batch = batching.batch_size, batching.sampler, batching.last_batch
    if hasattr(batch_size, "__len__") and not isinstance(batch_size, str):
        right = "must be an int >= 1; to load several arrays, call DataLoader(ArrayDataset(X, Y), batch_size)"
        raise bad_argument("batch_size", batch_size, right)
    if batching.batch_sampler is not None:
        _check_indices("batch_sampler", batching.batch_sampler, "lists of indices")
        if batch_size is not None or batching.shuffle or sampler is not None or last_batch is not None:
            raise ValueError("batch_sampler replaces batch_size, shuffle, sampler and last_batch; remove them")
        return batching.batch_sampler if ranks is None else part_of_rank("batch_sampler", batching.batch_sampler, ranks)
    if batch_size is None:
        raise ValueError("batch_size is missing; pass batch_size or batch_sampler")
    if sampler is not None:
        if batching.shuffle:
            raise ValueError("shuffle and sampler both set the order of samples; remove shuffle or sampler")
        _check_indices("sampler", sampler, "indices")
        if getattr(sampler, "_yields_batches", False):
            raise bad_argument("sampler", sampler, "it yields lists of indices; pass it as batch_sampler")
    elif batching.shuffle:
        sampler = RandomSampler(len(dataset), seed)
        sampler.adopts = not seed_given
    else:
        sampler = SequentialSampler(len(dataset))
    name, whole = "" if batching.sampler is None else "sampler", sampler
    if ranks is not None:
        sampler = part_of_rank(name, whole, ranks)
    batches = BatchSampler(sampler, batch_size, "keep" if last_batch is None else last_batch)
    length = length_of(sampler) if last_batch == "discard" and isinstance(whole, OrderedSampler) else None
    if length and length < batch_size:
        samples = f"{length} samples" + ("" if ranks is None else f" of rank {ranks.index}")
        what = f"last_batch='discard' drops all {samples}, which are fewer than batch_size={batch_size}"
        warn(f"{what}, so the loader yields no batches; pass a smaller batch_size, or last_batch='keep'")
    return batches


def check_dataset(dataset: Any, sized: bool) -> bool:
    """Checks that samples can be read, and returns whether the dataset is iterable.

    Args:
        sized: whether a dataset that is not iterable needs a length.
    """
    if right := _cure(dataset, sized):
        raise ValueError(f"dataset: {type(dataset)}; {right}")
    if is_iterable(dataset):
        return True
    check_awaited(dataset)
    needed = [("__len__", "len(dataset)"), ("__getitem__", "dataset[i]")]
    for name, method in needed if sized else needed[1:]:
        if isinstance(dataset, type) or not hasattr(dataset, name):
            what = f"{dataset!r} is a class" if isinstance(dataset, type) else f"{type(dataset)} has no {name}"
            right = f"pass an object that supports {method}, e.g. a list, or pass IterableDataset(iterable)"
            raise ValueError(f"dataset: {what}; {right}")
    return False


def _cure(dataset: Any, sized: bool) -> str:
    """Says what to pass instead of an object that has no samples at 0, 1, 2, ...; "" if the object may be a dataset."""
    if isinstance(dataset, (str, os.PathLike)):
        return "pass a dataset that reads the file, e.g. ArrowDataset(path) for Parquet, or list(text) for characters"
    if inspect.isgenerator(dataset):
        return f"it can be iterated only once; pass the function that makes it: {_call(dataset.gi_code.co_name)}"
    if inspect.isfunction(dataset):
        if inspect.isgeneratorfunction(dataset):
            return f"it is a generator function; pass {_call(dataset.__name__)}"
        return f"it is a function; if it returns an iterator of samples, pass {_call(dataset.__name__)}"
    cure = cure_of(dataset, "dataset")
    if cure and isinstance(dataset, Mapping):
        return f"{cure}, or pass a sampler of its keys" if sized else ""
    return cure


def _call(function: str) -> str:
    return f"IterableDataset({function if function.isidentifier() else 'make'})"  # not for `<lambda>` and `<genexpr>`


def _check_indices(name: str, indices: Any, example: str) -> None:
    if name == "batch_sampler" and type(indices) is int:
        cure = f"if you passed the arguments in the order of torch, pass num_workers={indices} by name"
        raise ValueError(f"batch_sampler={indices} is an int, but must be an iterable of {example}; {cure}")
    check_indices(name, indices, example)
    if hasattr(indices, "__next__"):
        raise bad_argument(name, indices, f"it can be iterated only once; pass a list or a Sampler of {example}")
    check_no_mask(name, indices)
