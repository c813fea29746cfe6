"""Checks the arguments of `DataLoader` about workers, reading and delivery, and chooses defaults.

The arguments that decide which samples make which batch are in batching.py.

Every check raises a ValueError that names the argument, its value and what to pass instead.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import frameworks
from ..checks import (
    ExecutorName,
    check_flags,
    check_functions,
    check_int,
    check_timeout,
    is_one_of,
    parse_bytes,
)
from ..declared import parts_of
from ..describe import class_name, counted
from ..errors import bad_argument, warn
from ..limits import available_cores
from ..loading.choice import Options
from ..loading.epoch import Delivery
from ..options import OnError, Processes, Ray, Seed, Threads, action_of
from ..units import size
from ..work.task import Reading
from .batching import Batching

if TYPE_CHECKING:
    from ..loading.index_source import IndexSource
    from ..loading.shard_source import ShardSource

# For `explain_arguments`: arguments of torch's loader, and what to pass instead.
TORCH_WORDS: Final = {
    "collate_fn": "pass batchify_fn instead",
    "drop_last": 'pass last_batch="discard" instead',
    "generator": "pass an int as seed instead",
    "multiprocessing_context": "pass start_method instead",
    "persistent_workers": "remove persistent_workers; workers always stay until close()",
    "pin_memory_device": "remove pin_memory_device; pin_memory=True is enough",
    "prefetch_factor": "pass prefetch=prefetch_factor * num_workers, the number of batches for all workers together",
}

_MUCH_AHEAD: Final = 1000  # batches, without a warning
_MUCH_AHEAD_OF_WORKER: Final = 100  # the same, for each worker
_MOST_PER_CORE: Final = 8  # worker processes, without a warning

# The same: arguments that are given in another one, with their other options.
MOVED: Final = {
    "max_retries": "pass executor=Processes(max_retries=...), from gluonloader.options",
    "max_per_worker": "pass executor=Processes(max_per_worker=...), from gluonloader.options",
    "ray_options": "pass executor=Ray(num_cpus=...), from gluonloader.options",
    "max_errors": 'pass on_error=OnError("skip", limit=...), from gluonloader.options',
    "reseed_generators": "pass seed=Seed(..., reseed_generators=False), from gluonloader.options",
    "num_shards": "pass IterableDataset(dataset, num_shards=...) as dataset",
    "shuffle_buffer": "pass IterableDataset(dataset, shuffle_buffer=...) as dataset, and shuffle=True",
    "share": 'pass ranks=Ranks(index, count, share="node"), or Ranks.of("env", share="node")',
}


def check_pins(pin_memory: object, pin_device_id: object, output: object) -> None:
    """Checks the arguments for page-locked memory, which only arrays of torch and MXNet can use."""
    check_flags(pin_memory=pin_memory)
    check_int("pin_device_id", pin_device_id)
    if pin_memory and output in ("numpy", "jax"):
        raise bad_argument("pin_memory", pin_memory, f"output={output!r} has no page-locked memory; remove pin_memory")


def warn_of_prefetch(options: Options, dataset: Any, batch_size: Any, source: IndexSource | ShardSource) -> None:
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
    executor: Any, num_workers: Any, thread_pool: bool, start_method: str | None, prefetch: Any, memory_limit: Any
) -> Options:
    """The executor, the number of workers, and their options; for the arguments see `DataLoader`."""
    name, number = _executor(executor, num_workers, thread_pool)
    return Options(
        name,
        number,
        None if prefetch is None else max(1, check_int("prefetch", prefetch)),
        _start_method(start_method, name),
        parse_bytes(memory_limit),
        executor if isinstance(executor, (Processes, Ray)) else Ray() if name == "ray" else Processes(),
    )


def check_executor(executor: Any, num_workers: int) -> Any:
    """Returns the argument `executor`, or raises a ValueError if it is wrong or does not fit `num_workers`."""
    if executor is not None and (num_workers or executor != "auto"):  # without workers there is nothing to choose
        _executor(executor, num_workers, False)
    return executor


def _executor(executor: Any, num_workers: Any, thread_pool: bool) -> tuple[ExecutorName, int]:
    """The executor that was passed or that follows from `num_workers`, and the number of workers."""
    if isinstance(executor, (Processes, Threads, Ray)):
        executor = executor.name
    check_flags(thread_pool=False if thread_pool is None else thread_pool)
    if isinstance(num_workers, str) and num_workers != "auto":
        raise bad_argument("num_workers", num_workers, "must be an int >= 0, or 'auto'")
    if executor is not None and not is_one_of(executor, ("serial", "thread", "process", "ray", "auto")):
        right = "must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers"
        raise bad_argument("executor", executor, right)
    number = 0 if isinstance(num_workers, str) else check_int("num_workers", num_workers)
    if automatic := num_workers == "auto" or (executor == "auto" and not number):
        number = available_cores()
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


def _start_method(start_method: str | None, executor: str) -> str:
    """The start method of worker processes: the argument, or the default."""
    known = sorted(multiprocessing.get_all_start_methods())
    if start_method is not None and not is_one_of(start_method, known):
        raise bad_argument("start_method", start_method, f"must be one of {known}, or None")
    if start_method is not None and executor not in ("process", "auto"):
        raise bad_argument("start_method", start_method, f"executor={executor!r} has no processes; remove start_method")
    if start_method is not None:
        return start_method
    default, chosen = default_start_method(), multiprocessing.get_start_method(allow_none=True)
    forks = executor in ("process", "auto") and not multiprocessing.current_process().daemon  # else it uses threads
    if chosen not in (None, default) and forks:
        _warn_of_fork(str(chosen))
    return default


def default_start_method() -> str:
    """The start method if none is passed: the one that the program has chosen, or fork on Linux.

    As soon as a program uses `multiprocessing`, the start method is set to Python's default, and that looks like a
    choice of the program. So only another method counts as a choice.
    """
    chosen = multiprocessing.get_start_method(allow_none=True)
    python_default = multiprocessing.get_all_start_methods()[0]
    if chosen not in (None, python_default):
        return str(chosen)
    return "fork" if sys.platform == "linux" else python_default


@cache
def _warn_of_fork(method: str) -> None:
    """Warns once per program that workers are forked although `multiprocessing` starts processes in another way."""
    warn(
        f"workers are forked, although multiprocessing's start method is {method!r}: that is Python's default, too, so "
        f"it may not be your choice; pass start_method='fork' or start_method={method!r}"
    )


def choose_reading(
    dataset: Any, iterable: bool, batching: Batching, concurrency: Any, policy: OnError | None, seed: Seed
) -> Reading:
    """How samples are read; for the arguments see `DataLoader`, where `policy` is `on_error`."""
    action = action_of(policy)
    check_int("concurrency", concurrency, 1)
    if iterable and concurrency > 1:
        right = "an iterable dataset yields one sample after the other; remove it, or pass a larger num_workers"
        raise bad_argument("concurrency", concurrency, right)
    if iterable and action == "replace":
        right = f"{class_name(dataset)} is an iterable dataset, which has no other sample to read; pass 'skip'"
        raise bad_argument("on_error", action, right)
    replaces_from_all = action == "replace" and batching.is_made_here
    return Reading(int(concurrency), action, replaces_from_all, bool(seed.reseed_generators))


def most_errors(dataset: Any, policy: OnError | None) -> int | None:
    """How many samples of an epoch may raise an error; None without a policy."""
    if policy is None:
        return None
    if not isinstance(policy.limit, (float, np.floating)):
        return int(policy.limit)
    try:
        samples = len(dataset)
    except TypeError:
        what = f"{class_name(dataset)} has no length to compute a share of"
        right = f"{what}; pass a count: on_error=OnError({policy.action!r}, limit=100), from gluonloader.options"
        raise bad_argument("on_error", policy, right) from None
    return max(1, int(policy.limit * samples)) if policy.limit else 0


def choose_delivery(
    in_order: Any, timeout: Any, output: Any, pin_memory: Any, pin_device_id: Any, max_errors: int | None = None
) -> Delivery:
    """How batches are delivered; for the arguments see `DataLoader` and `Delivery`."""
    check_flags(in_order=in_order)
    check_timeout(timeout)
    check_pins(pin_memory, pin_device_id, output)
    return Delivery(bool(in_order), timeout, choose_output(output, pin_memory, pin_device_id), max_errors)


def choose_output(output: Any, pin_memory: bool, pin_device_id: int) -> Callable[[Any], Any] | None:
    """The function that is applied to a delivered batch: it converts the arrays to `output`, and pins them."""
    if output is not None and not callable(output) and not is_one_of(output, frameworks.OUTPUTS):
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
