"""Checks the arguments of `DataLoader`, and chooses the defaults of those that were not passed.

Every check raises a ValueError that names the argument, its value and what to pass instead.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import frameworks
from ..checks import (
    ExecutorName,
    LastBatch,
    check_flags,
    check_functions,
    check_indices,
    check_int,
    check_last_batch,
    check_on_error,
    check_timeout,
    cure_of,
    parse_bytes,
)
from ..dataset.arrays import warn_of_columns
from ..dataset.base import check_awaited
from ..dataset.bulk import check_no_mask
from ..dataset.iterable import check_iterable, check_split, is_iterable, varying_steps
from ..declared import parts_of
from ..describe import counted
from ..errors import bad_argument, warn
from ..limits import available_cores
from ..ranks import Ranks
from ..sampler import BatchSampler, OrderedSampler, RandomSampler, SequentialSampler, ShardedSampler
from ..units import size
from ..work.task import Reading
from .choice import Options
from .epoch import Delivery
from .lengths import quota_of
from .plan import Shards
from .random_order import check_random_order
from .sources import IndexSource, ShardSource, Source

# For `explain_torch_arguments`: arguments of torch's loader, and what to pass instead.
TORCH_WORDS: Final = {
    "collate_fn": "pass batchify_fn instead",
    "drop_last": 'pass last_batch="discard" instead',
    "generator": "pass an int as seed instead",
    "multiprocessing_context": "pass start_method instead",
    "persistent_workers": "remove persistent_workers; workers always stay until close()",
    "pin_memory_device": "remove pin_memory_device; pin_memory=True is enough",
    "prefetch_factor": "pass prefetch=prefetch_factor * num_workers, the number of batches for all workers together",
}

# The loader starts dead workers again and repeats their batches itself; and a worker has one thread for its batches.
_FIXED_RAY_OPTIONS: Final = ("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups", "lifetime")
_SHUFFLE_BUFFER: Final = 1000  # samples
_ERROR_SHARE: Final = 0.01  # of the dataset's samples may raise an error in an epoch
_MUCH_AHEAD: Final = 1000  # batches, without a warning
_MUCH_AHEAD_OF_WORKER: Final = 100  # the same, for each worker
_MOST_PER_CORE: Final = 8  # worker processes, without a warning


@dataclass(frozen=True, slots=True)
class Batching:
    """The arguments of `DataLoader` that decide which samples make which batch."""

    batch_size: int | None
    shuffle: bool
    sampler: Any
    last_batch: LastBatch | None
    batch_sampler: Any
    num_shards: int | None
    shuffle_buffer: int | None
    ranks: Any


def choose_source(dataset: Any, batching: Batching, seed: int, seed_given: bool, num_workers: int) -> Source:
    """The source of tasks: shards for an iterable dataset, indices for any other dataset."""
    _check_dataset(dataset, sized=batching.sampler is None and batching.batch_sampler is None)
    if is_iterable(dataset):
        ranks = _ranks(batching.ranks, seed_given)
        shards = _shards(dataset, batching, ranks, num_workers)
        return ShardSource(shards, quota_of(dataset, shards, ranks))
    warn_of_columns("dataset", dataset)
    for name in ("num_shards", "shuffle_buffer"):
        if (value := getattr(batching, name)) is not None:
            raise bad_argument(name, value, f"only iterable datasets are read in shards; remove {name}")
    if batching.ranks is not None:
        right = "only iterable datasets are read in shards; pass a ShardedSampler as sampler instead"
        if sampler := _sampler_of_ranks(batching):
            right = f"{sampler} already divides the samples among the ranks; remove one of them: remove ranks, "
            right += "which is only for iterable datasets"
        raise bad_argument("ranks", batching.ranks, right)
    batches = _batch_sampler(dataset, batching, seed, seed_given)
    check_random_order(dataset, batching.shuffle, batching.sampler, batching.batch_sampler)
    is_made_here = batching.sampler is None and batching.batch_sampler is None
    return IndexSource(batches, fixed_length=len(batches.sampler) if is_made_here else None)


def _sampler_of_ranks(batching: Batching) -> str:
    """The argument that divides the samples among ranks, such as "sampler=DistributedSampler(...)"; "" if none does."""
    for name in ("sampler", "batch_sampler"):
        value = getattr(batching, name)
        for sampler in (value, getattr(value, "sampler", None)):
            # `num_replicas` is an attribute of torch's DistributedSampler, and of samplers that are made like it.
            if isinstance(sampler, ShardedSampler) or hasattr(sampler, "num_replicas"):
                return f"{name}={type(value).__name__}(...)"
    return ""


def _ranks(ranks: Any, seed_given: bool) -> Ranks:
    """The argument `ranks` as an object."""
    if ranks is None:
        return Ranks(0, 1)
    if isinstance(ranks, str):
        ranks = Ranks.of(ranks)  # type: ignore[arg-type]  # it checks the value
    elif isinstance(ranks, tuple) and len(ranks) == 2:
        ranks = Ranks(*ranks)
    if not isinstance(ranks, Ranks):
        raise bad_argument("ranks", ranks, "must be (index, count), 'env', 'torch', 'mpi', or a gluonloader.Ranks")
    if not seed_given:
        right = "without a seed, each process draws its own one; pass the same seed on all ranks, e.g. seed=0"
        raise bad_argument("ranks", ranks, right)
    return ranks


def _shards(dataset: Any, batching: Batching, ranks: Ranks, num_workers: int) -> Shards:
    check_iterable(dataset)
    for name in ("sampler", "batch_sampler"):
        if (value := getattr(batching, name)) is not None:
            right = f"{type(dataset).__name__} is an iterable dataset, which sets the order itself; remove {name}"
            if batching.ranks is not None and (sampler := _sampler_of_ranks(batching)):
                right = f"ranks and {sampler} both divide the samples among the ranks; remove one of them: "
                right += f"remove {name}, since {type(dataset).__name__} sets the order itself"
            raise bad_argument(name, value, right)
    size = 1 if batching.batch_size is None else check_int("batch_size", batching.batch_size, 1)
    least, given = ranks.count, batching.num_shards
    shards = least * max(1, num_workers) if given is None else check_int("num_shards", given, 1)
    if shards < least:
        raise bad_argument("num_shards", given, f"each of the {least} ranks needs a shard; pass at least {least}")
    check_split(dataset, shards, batching.ranks is not None)
    if given is None and (steps := varying_steps(dataset, shards)):
        _warn_of_steps(sorted(steps), shards, least)
    buffer = batching.shuffle_buffer
    if buffer is not None and not batching.shuffle:
        raise bad_argument("shuffle_buffer", buffer, "it needs shuffle=True; pass that too, or remove shuffle_buffer")
    buffer = check_int("shuffle_buffer", _SHUFFLE_BUFFER if buffer is None else buffer, 2) if batching.shuffle else 0
    last_batch = "keep" if batching.last_batch is None else check_last_batch(batching.last_batch)
    return Shards(shards, size, last_batch, buffer, num_workers, ranks.index, ranks.count)


def _warn_of_steps(steps: list[str], shards: int, ranks: int) -> None:
    """Warns that other numbers of workers would yield other samples."""
    who = f"{' and '.join(steps)} of Hugging Face {'apply' if len(steps) > 1 else 'applies'}"
    each = "worker of each rank" if ranks > 1 else "worker"
    whole = "" if ranks > 1 else "num_shards=1 for the samples that the dataset itself yields, or "
    warn(
        f"{who} to each shard separately, so the samples depend on the number of shards, which is one for each {each} "
        f"by default (here {shards}); pass {whole}num_shards={shards} to get these samples with any number of workers"
    )


def _batch_sampler(dataset: Any, batching: Batching, seed: int, seed_given: bool) -> Any:
    batch_size, sampler, last_batch = batching.batch_size, batching.sampler, batching.last_batch
    if hasattr(batch_size, "__len__") and not isinstance(batch_size, str):
        right = "must be an int >= 1; to load several arrays, call DataLoader(ArrayDataset(X, Y), batch_size)"
        raise bad_argument("batch_size", batch_size, right)
    if batching.batch_sampler is not None:
        _check_indices("batch_sampler", batching.batch_sampler, "lists of indices")
        if batch_size is not None or batching.shuffle or sampler is not None or last_batch is not None:
            raise ValueError("batch_sampler replaces batch_size, shuffle, sampler and last_batch; remove them")
        return batching.batch_sampler
    if batch_size is None:
        raise ValueError("batch_size is missing; pass batch_size or batch_sampler")
    if sampler is not None:
        if batching.shuffle:
            raise ValueError("shuffle and sampler both set the order of samples; remove shuffle or sampler")
        _check_indices("sampler", sampler, "indices")
        if isinstance(sampler, BatchSampler):
            raise bad_argument("sampler", sampler, "it yields lists of indices; pass it as batch_sampler")
    elif batching.shuffle:
        sampler = RandomSampler(len(dataset), seed)
        sampler.adopts = not seed_given
    else:
        sampler = SequentialSampler(len(dataset))
    batches = BatchSampler(sampler, batch_size, last_batch or "keep")
    if last_batch == "discard" and isinstance(sampler, OrderedSampler) and 0 < len(sampler) < batch_size:
        what = f"last_batch='discard' drops all {len(sampler)} samples, which are fewer than batch_size={batch_size}"
        warn(f"{what}, so the loader yields no batches; pass a smaller batch_size, or last_batch='keep'")
    return batches


def _check_dataset(dataset: Any, sized: bool) -> None:
    """Checks that samples can be read; `sized` says that no sampler was passed, so the dataset needs a length."""
    if right := _cure(dataset, sized):
        raise ValueError(f"dataset: {type(dataset)}; {right}")
    if is_iterable(dataset):
        return
    check_awaited(dataset)
    needed = [("__len__", "len(dataset)"), ("__getitem__", "dataset[i]")]
    for name, method in needed if sized else needed[1:]:
        if isinstance(dataset, type) or not hasattr(dataset, name):
            what = f"{dataset!r} is a class" if isinstance(dataset, type) else f"{type(dataset)} has no {name}"
            right = f"pass an object that supports {method}, e.g. a list, or pass IterableDataset(iterable)"
            raise ValueError(f"dataset: {what}; {right}")


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


def check_pins(pin_memory: object, pin_device_id: object, output: object) -> None:
    """Checks the arguments for page-locked memory, which only arrays of torch and MXNet can use."""
    check_flags(pin_memory=pin_memory)
    check_int("pin_device_id", pin_device_id)
    if pin_memory and output in ("numpy", "jax"):
        raise bad_argument("pin_memory", pin_memory, f"output={output!r} has no page-locked memory; remove pin_memory")


def warn_of_prefetch(options: Options, dataset: Any, batch_size: Any, source: Source) -> None:
    """Warns if workers may make very many batches ahead."""
    prefetch, workers = options.prefetch or 0, options.num_workers
    if prefetch <= max(_MUCH_AHEAD, _MUCH_AHEAD_OF_WORKER * workers) or not workers:
        return
    ahead, batch_bytes, what = prefetch, 0, f"{prefetch:,} batches"
    with suppress(TypeError, ValueError, NotImplementedError):  # there is no length
        number = source.batches(dataset, None)
        if number <= prefetch:
            ahead, what = number, f"{counted(number, 'batch', 'batches')}, which is all of an epoch,"
        batch_bytes = _nbytes(dataset) // max(1, len(dataset)) * (batch_size or 0)
    memory = f"about {size(ahead * batch_bytes)}" if batch_bytes else f"{size(ahead << 20)} if each of them takes 1 MB"
    warn(
        f"prefetch={prefetch:,}: workers may make {what} before the program asks for them; all stay in memory "
        f"({memory}); pass a smaller prefetch, or remove it for the default of {2 * workers}"
    )


def _nbytes(data: Any) -> int:
    """Bytes of the arrays that a dataset consists of; 0 if they are not known."""
    nbytes = getattr(data, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else sum(map(_nbytes, parts_of(data) or ()))


def choose_options(
    executor: str | None,
    num_workers: Any,
    thread_pool: bool,
    start_method: str | None,
    ray_options: Any,
    prefetch: Any,
    max_retries: Any,
    memory_limit: Any,
    max_per_worker: Any,
) -> Options:
    """The executor, the number of workers, and their options; for the arguments see `DataLoader`."""
    name, number = _executor(executor, num_workers, thread_pool)
    return Options(
        name,
        number,
        None if prefetch is None else max(1, check_int("prefetch", prefetch)),
        _start_method(start_method, name),
        check_int("max_retries", max_retries),
        parse_bytes(memory_limit),
        None if max_per_worker is None else check_int("max_per_worker", max_per_worker, 1),
        _ray_options(ray_options, name),
    )


def _executor(executor: str | None, num_workers: Any, thread_pool: bool) -> tuple[ExecutorName, int]:
    """The executor that was passed or that follows from `num_workers`, and the number of workers."""
    check_flags(thread_pool=thread_pool or False)
    if isinstance(num_workers, str) and num_workers != "auto":
        raise bad_argument("num_workers", num_workers, "must be an int >= 0, or 'auto'")
    number = 0 if num_workers == "auto" else check_int("num_workers", num_workers)
    if automatic := num_workers == "auto" or (executor == "auto" and not number):
        number = available_cores()
    if executor not in (None, "serial", "thread", "process", "ray", "auto"):
        right = "must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers"
        raise bad_argument("executor", executor, right)
    if executor == "serial" and number:
        raise bad_argument("num_workers", num_workers, "executor='serial' has no workers; pass 0 or another executor")
    if executor in ("thread", "process", "ray") and not number:
        raise bad_argument("num_workers", num_workers, f"executor={executor!r} needs num_workers >= 1")
    if thread_pool and executor not in (None, "thread"):
        raise bad_argument("thread_pool", thread_pool, f"it contradicts executor={executor!r}; remove thread_pool")
    if not number:
        return "serial", 0
    if thread_pool or executor == "thread":
        return "thread", number
    if executor == "ray":
        if automatic:
            right = "it means the cores of this machine, but executor='ray' may use others; pass the number of actors"
            raise bad_argument("num_workers", num_workers, right)
        return "ray", number
    if number > _MOST_PER_CORE and number > _MOST_PER_CORE * (cores := available_cores()):
        warn(
            f"num_workers={number}: more than {_MOST_PER_CORE} worker processes per core (this program may use "
            f"{cores} cores); pass num_workers={cores} or 'auto', or executor='thread' if samples wait for a network"
        )
    return "auto" if executor == "auto" or (automatic and executor is None) else "process", number


def _ray_options(options: Any, executor: str) -> Mapping[str, Any]:
    """The options of each actor of Ray."""
    if options is None:
        return {}
    if executor != "ray":
        raise bad_argument("ray_options", options, f"executor={executor!r} does not use Ray; pass executor='ray'")
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise bad_argument("ray_options", options, "must be a dict of options of a Ray actor, e.g. {'num_cpus': 2}")
    for name in _FIXED_RAY_OPTIONS:
        if name in options:
            raise bad_argument("ray_options", options, f"the loader sets {name} itself; remove it")
    return dict(options)


def _start_method(start_method: str | None, executor: str) -> str:
    """The start method of worker processes: the argument, the method set in `multiprocessing`, or the default."""
    known = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in known:
        raise bad_argument("start_method", start_method, f"must be one of {known}, or None")
    if start_method is not None and executor not in ("process", "auto"):
        raise bad_argument("start_method", start_method, f"executor={executor!r} has no processes; remove start_method")
    return (
        start_method
        or multiprocessing.get_start_method(allow_none=True)
        or ("fork" if sys.platform == "linux" else multiprocessing.get_start_method())
    )


def choose_reading(
    dataset: Any, batching: Batching, concurrency: Any, on_error: Any, max_errors: Any, reseed_generators: Any
) -> Reading:
    """How samples are read; for the arguments see `DataLoader`."""
    check_flags(reseed_generators=reseed_generators)
    check_on_error(on_error)
    check_int("concurrency", concurrency, 1)
    if is_iterable(dataset) and concurrency > 1:
        right = "an iterable dataset yields one sample after the other; remove it, or pass a larger num_workers"
        raise bad_argument("concurrency", concurrency, right)
    replace_from = 0
    if is_iterable(dataset) and on_error == "replace":
        right = f"{type(dataset).__name__} is an iterable dataset, which has no other sample to read; pass 'skip'"
        raise bad_argument("on_error", on_error, right)
    if on_error == "replace" and batching.sampler is None and batching.batch_sampler is None:
        replace_from = len(dataset)
    limit = _max_errors(dataset, on_error, max_errors)
    return Reading(int(concurrency), on_error, limit, replace_from, bool(reseed_generators))


def _max_errors(dataset: Any, on_error: Any, max_errors: Any) -> int | None:
    """How many samples of an epoch may raise an error; None if each error is raised."""
    if on_error == "raise":
        if max_errors is not None:
            right = "errors are counted only if on_error is 'skip', 'replace' or a function; pass on_error, too"
            raise bad_argument("max_errors", max_errors, right)
        return None
    share = _ERROR_SHARE if max_errors is None else max_errors
    if not isinstance(share, (float, np.floating)):
        return check_int("max_errors", share, 0, "must be a count (an int >= 0), or a share (a float from 0 to 1)")
    if not 0 <= share <= 1:
        raise bad_argument("max_errors", max_errors, "a share must be from 0.0 to 1.0; pass an int for a count")
    try:
        samples = len(dataset)
    except TypeError:
        right = f"{type(dataset).__name__} has no length to compute a share of; pass a count, e.g. max_errors=100"
        raise bad_argument("max_errors", max_errors, right) from None
    return max(1, int(share * samples)) if share else 0


def choose_delivery(in_order: Any, timeout: Any, output: Any, pin_memory: Any, pin_device_id: Any) -> Delivery:
    """How batches are delivered; for the arguments see `DataLoader`."""
    check_flags(in_order=in_order)
    check_timeout(timeout)
    check_pins(pin_memory, pin_device_id, output)
    return Delivery(bool(in_order), timeout, choose_output(output, pin_memory, pin_device_id))


def choose_output(output: Any, pin_memory: bool, pin_device_id: int) -> Callable[[Any], Any] | None:
    """The function that is applied to a delivered batch: it converts the arrays to `output`, and pins them."""
    if output is not None and not callable(output) and output not in frameworks.OUTPUTS:
        known = ", ".join(map(repr, frameworks.OUTPUTS))
        raise bad_argument("output", output, f"must be one of {known}, a function of one array, or None")
    if isinstance(output, type):
        framework = frameworks.owner_by_base(output)
        if framework is not None or issubclass(output, np.ndarray):
            name = "numpy" if framework is None else framework.name.partition(".")[0]
            raise bad_argument("output", output, f"it is a class of arrays; pass output={name!r}")
        check_functions(output=output)
    return _Convert(output, pin_memory, pin_device_id) if output is not None or pin_memory else None


class _Convert:
    def __init__(self, output: Any, pin_memory: bool, pin_device_id: int) -> None:
        self._arguments = output, pin_memory, pin_device_id
        self._steps = [frameworks.converter(output)] if output is not None else []
        self._steps += [frameworks.pinner(pin_device_id)] if pin_memory else []

    def __call__(self, batch: Any) -> Any:
        for step in self._steps:
            batch = frameworks.map_arrays(step, batch)
        return batch

    def __reduce__(self) -> Any:
        return _Convert, self._arguments
