"""The arguments of `DataLoader`: what is wrong with them, and what stands for those that were left out.

Every check raises a ValueError that names the argument, its value and what would be right.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .. import frameworks
from ..checks import ExecutorName, LastBatch, check_flags, check_int, check_last_batch
from ..dataset.bulk import check_no_mask
from ..errors import bad_argument
from ..indices import Keys, is_int_array
from ..limits import available_cores
from ..sampler import BatchSampler, RandomSampler, SequentialSampler, as_keys

__all__ = [
    "TORCH_WORDS",
    "check_batch",
    "check_dataset",
    "check_indices",
    "check_not_for_iterables",
    "check_only_for_iterables",
    "check_pins",
    "choose_batch_sampler",
    "choose_executor",
    "choose_finish",
    "choose_last_batch",
    "choose_shuffle_buffer",
    "choose_start_method",
    "choose_workers",
]


# For `other_words`: arguments of torch's loader, and what is given here in their place.
TORCH_WORDS: Final = {
    "collate_fn": "give batchify_fn",
    "drop_last": 'give last_batch="discard"',
    "generator": "give seed, an int",
    "multiprocessing_context": "give start_method",
    "persistent_workers": "leave it out, workers stay until close()",
    "pin_memory_device": "leave it out, pin_memory=True is enough",
    "prefetch_factor": "give prefetch, which counts over all workers: prefetch_factor * num_workers",
}

_SHUFFLE_BUFFER: Final = 1000


def check_dataset(dataset: Any, sized: bool) -> None:
    """`sized`: its length is needed, since no sampler is given."""
    if right := _in_place_of(dataset, sized):
        raise ValueError(f"dataset: {type(dataset)}; {right}")
    needed = [("__len__", "len(dataset)"), ("__getitem__", "dataset[i]")]
    for name, method in needed if sized else needed[1:]:
        if isinstance(dataset, type) or not hasattr(dataset, name):
            what = f"{dataset!r} is a class" if isinstance(dataset, type) else f"{type(dataset)} has no {name}"
            right = f"give an object for which {method} works, as for a list, or IterableDataset(what iterates)"
            raise ValueError(f"dataset: {what}; {right}")


def _in_place_of(dataset: Any, sized: bool) -> str:
    """What to give in the place of something that holds samples, but not at 0, 1, 2, ...; "" if it may be fine."""
    kind = type(dataset)
    if kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and hasattr(kind, "columns"):
        return "give ArrowDataset(table), whose samples are its rows"
    if isinstance(dataset, (str, os.PathLike)):
        return "give a dataset that reads it, for Parquet ArrowDataset(path); or list(text) for its characters"
    if sized and isinstance(dataset, Mapping) and isinstance(next(iter(dataset), None), str):
        return "it has names, not numbers: give StackDataset(**dataset), whose samples are dicts, or a sampler of names"
    return ""


def check_pins(pin_memory: object, pin_device_id: object, output: object) -> None:
    """Page-locked memory is for arrays of torch and MXNet."""
    check_flags(pin_memory=pin_memory)
    check_int("pin_device_id", pin_device_id)
    if pin_memory and output in ("numpy", "jax"):
        raise bad_argument("pin_memory", pin_memory, f"output={output!r} has no page-locked memory; leave it False")


def check_indices(name: str, indices: Any, example: str) -> None:
    if not hasattr(indices, "__iter__"):
        raise bad_argument(name, indices, f"give an iterable of {example}")
    if hasattr(indices, "__next__"):
        raise bad_argument(name, indices, f"it can be iterated only once; give a list, or a Sampler, of {example}")
    check_no_mask(name, indices)


def check_batch(indices: Any, number: int, batch_sampler: Any) -> Keys:
    """The keys that a batch sampler gave for a batch; an array is copied, since it may be used again for the next."""
    keys = as_keys(indices) if is_int_array(indices) else list(indices) if hasattr(indices, "__iter__") else []
    if not len(keys):
        right = f"it gave {indices!r} for batch {number}; let it give lists of indices, at least one in each"
        raise bad_argument("batch_sampler", batch_sampler, right)
    return keys


def choose_last_batch(last_batch: LastBatch | None) -> LastBatch:
    return "keep" if last_batch is None else check_last_batch(last_batch)


@dataclass(frozen=True, slots=True)
class Workers:
    """How many there are, and whether that was left to the loader."""

    number: int
    automatic: bool


def choose_workers(num_workers: Any, executor: str | None) -> Workers:
    """Where it is 'auto', or none is given to `executor="auto"`, there is one for each core."""
    if isinstance(num_workers, str) and num_workers != "auto":
        raise bad_argument("num_workers", num_workers, "give an int >= 0, or 'auto'")
    number = 0 if num_workers == "auto" else check_int("num_workers", num_workers)
    automatic = num_workers == "auto" or (executor == "auto" and not number)
    return Workers(available_cores() if automatic else number, automatic)


def choose_executor(executor: str | None, workers: Workers, thread_pool: bool) -> ExecutorName:
    """By name, or by the others."""
    num_workers = workers.number
    if executor not in (None, "serial", "thread", "process", "auto"):
        right = "give 'serial', 'thread', 'process' or 'auto', or None to go by num_workers"
        raise bad_argument("executor", executor, right)
    if executor == "serial" and num_workers:
        right = "executor='serial' has none; give 0, or another executor"
        raise bad_argument("num_workers", "auto" if workers.automatic else num_workers, right)
    if executor in ("thread", "process") and not num_workers:
        raise bad_argument("num_workers", num_workers, f"executor={executor!r} needs at least 1")
    if thread_pool and executor not in (None, "thread"):
        raise bad_argument("thread_pool", thread_pool, f"it contradicts executor={executor!r}; leave one of them out")
    if not num_workers:
        return "serial"
    if executor == "auto" or (workers.automatic and executor is None and not thread_pool):
        return "auto"
    wanted: ExecutorName = "thread" if thread_pool or executor == "thread" else "process"
    if wanted == "process" and multiprocessing.current_process().daemon:
        warnings.warn(
            "this DataLoader is made in a worker process, which may not start processes of its own: it uses threads",
            RuntimeWarning,
            stacklevel=4,
        )
        return "thread"
    return wanted


def choose_start_method(start_method: str | None, executor: str) -> str:
    known = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in known:
        raise bad_argument("start_method", start_method, f"give one of {known}, or None")
    if start_method is not None and executor not in ("process", "auto"):
        raise bad_argument("start_method", start_method, f"executor={executor!r} starts no processes; leave it out")
    return (
        start_method
        or multiprocessing.get_start_method(allow_none=True)
        or ("fork" if sys.platform == "linux" else multiprocessing.get_start_method())
    )


def choose_batch_sampler(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool,
    sampler: Any,
    last_batch: LastBatch | None,
    batch_sampler: Any,
    seed: int,
    seed_given: bool,
) -> Any:
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError("batch_sampler replaces batch_size, shuffle, sampler and last_batch: leave those out")
        check_indices("batch_sampler", batch_sampler, "lists of indices")
        return batch_sampler
    if batch_size is None:
        raise ValueError("batch_size must be given, unless batch_sampler is")
    if sampler is not None:
        if shuffle:
            raise ValueError("shuffle and sampler both say in which order to read: leave one of them out")
        check_indices("sampler", sampler, "indices")
    elif shuffle:
        sampler = RandomSampler(len(dataset), seed)
        sampler.adopts = not seed_given
    else:
        sampler = SequentialSampler(len(dataset))
    return BatchSampler(sampler, batch_size, last_batch or "keep")


def choose_shuffle_buffer(shuffle: bool, shuffle_buffer: int | None) -> int:
    """Samples of an iterable dataset that are shuffled among each other; 0 for none."""
    if shuffle_buffer is not None and not shuffle:
        raise bad_argument("shuffle_buffer", shuffle_buffer, "it belongs to shuffle=True; give that as well")
    return check_int("shuffle_buffer", _SHUFFLE_BUFFER if shuffle_buffer is None else shuffle_buffer, 2) * bool(shuffle)


def check_only_for_iterables(**arguments: object) -> None:
    """Arguments that say nothing about a dataset that is read by index."""
    for name, value in arguments.items():
        if value is not None:
            raise bad_argument(name, value, "it is for iterable datasets, which are read in shards; leave it out")


def check_not_for_iterables(dataset: Any, **arguments: object) -> None:
    """Arguments that choose indices, of which an iterable dataset has none."""
    for name, value in arguments.items():
        if value is not None:
            kind = type(dataset).__name__
            raise bad_argument(name, value, f"{kind} can be iterated, not indexed, so nothing can choose its order")


def choose_finish(output: Any, pin_memory: bool, pin_device_id: int) -> Callable[[Any], Any] | None:
    """What is done to a batch when it is delivered: its arrays become those of `output`, and are pinned."""
    if output is not None and not callable(output) and output not in frameworks.OUTPUTS:
        known = ", ".join(map(repr, frameworks.OUTPUTS))
        raise bad_argument("output", output, f"give one of {known}, a function of one array, or None")
    return _Finish(output, pin_memory, pin_device_id) if output is not None or pin_memory else None


class _Finish:
    def __init__(self, output: Any, pin_memory: bool, pin_device_id: int) -> None:
        self._arguments = output, pin_memory, pin_device_id
        self._steps = [frameworks.converter(output)] if output is not None else []
        self._steps += [frameworks.pinner(pin_device_id)] if pin_memory else []

    def __call__(self, batch: Any) -> Any:
        for step in self._steps:
            batch = frameworks.map_arrays(step, batch)
        return batch

    def __reduce__(self) -> Any:
        return _Finish, self._arguments
