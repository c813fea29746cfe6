"""Objects for arguments of `DataLoader` that have options of their own: `executor`, `on_error` and `seed`.

>>> from gluonloader import DataLoader
>>> len(DataLoader(range(9), 4, seed=Seed(1), on_error=OnError("skip", limit=100)))
3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from .checks import ErrorAction, ExecutorName, check_error_action, check_flags, check_int
from .errors import bad_argument

__all__ = ["OnError", "Processes", "Ray", "Seed", "Threads"]

# The loader starts dead workers again and repeats their batches itself; and a worker has one thread for its batches.
_FIXED: Final = ("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups", "lifetime")


@dataclass(frozen=True)
class Processes:
    """Worker processes: `executor=Processes(max_retries=3)`; "process" is `Processes()`.

    Args:
        max_retries: how often a batch whose worker died is tried again before `WorkerDied` is raised.
        max_per_worker: the maximum number of batches that are assigned to a worker at a time; further batches wait for
            the next free worker. By default all batches in flight are assigned at once, and idle workers take over
            batches that wait behind a slow batch.

    Raises:
        ValueError: an argument is wrong.
    """

    max_retries: int = 1
    max_per_worker: int | None = None
    name: ClassVar[ExecutorName] = "process"

    def __post_init__(self) -> None:
        _check_limits(self.max_retries, self.max_per_worker)


@dataclass(frozen=True)
class Threads:
    """Worker threads: `executor=Threads()` is `executor="thread"`."""

    name: ClassVar[ExecutorName] = "thread"


@dataclass(frozen=True, init=False)
class Ray:
    """Workers that are actors of Ray: `executor=Ray(num_cpus=2)`; "ray" is `Ray()`.

    Args:
        max_retries, max_per_worker: as for `Processes`.
        options: the options of each actor, for example `num_cpus=2` or `resources={"decoder": 1}`; Ray's
            `scheduling_strategy` and `runtime_env` are also such options.

    Raises:
        ValueError: an argument is wrong, or it is an option that the loader sets itself.
    """

    max_retries: int
    max_per_worker: int | None
    options: Mapping[str, Any]
    name: ClassVar[ExecutorName] = "ray"

    def __init__(self, *, max_retries: int = 1, max_per_worker: int | None = None, **options: Any) -> None:
        _check_limits(max_retries, max_per_worker)
        for option in _FIXED:
            if option in options:
                raise bad_argument(option, options[option], "the loader sets this option of an actor itself; remove it")
        vars(self).update(max_retries=max_retries, max_per_worker=max_per_worker, options=options)


def _check_limits(max_retries: Any, max_per_worker: Any) -> None:
    check_int("max_retries", max_retries)
    if max_per_worker is not None:
        check_int("max_per_worker", max_per_worker, 1)


@dataclass(frozen=True)
class OnError:
    """What to do if samples raise errors, and how many may: `on_error=OnError("skip", limit=100)`.

    Args:
        action: "skip", "replace" or a function, as the argument `on_error` of `DataLoader`.
        limit: how many samples of an epoch may raise an error: a count, or a share of `len(dataset)` as a float. If
            there are more, the epoch ends with `TooManyErrors`.

    Raises:
        ValueError: an argument is wrong.
    """

    action: Literal["skip", "replace"] | Callable[[Exception, Any], Any]
    limit: float = 0.01

    def __post_init__(self) -> None:
        if check_error_action("action", self.action) == "raise":
            raise bad_argument("action", self.action, "then no error is counted; pass on_error='raise'")
        if not isinstance(self.limit, (float, np.floating)):
            check_int("limit", self.limit, 0, "must be a count (an int >= 0), or a share (a float from 0 to 1)")
        elif not 0 <= self.limit <= 1:
            raise bad_argument("limit", self.limit, "a share must be from 0.0 to 1.0; pass an int for a count")


@dataclass(frozen=True)
class Seed:
    """A seed, and which random generators are seeded with it: `seed=Seed(0, reseed_generators=False)`.

    Args:
        value: as the argument `seed` of `DataLoader`.
        reseed_generators: before each batch, set a new seed for each random generator of NumPy, `random` and torch that
            is an attribute of the dataset, of its transforms (also of Albumentations' pipelines) or of `batchify_fn`.
            So augmentation does not repeat, and is the same for any number of workers. Threads share these generators,
            so they do not set seeds; see `docs/exact.md`.

    Raises:
        ValueError: `reseed_generators` is not True or False.
    """

    value: int | None = None
    reseed_generators: bool = True

    def __post_init__(self) -> None:
        check_flags(reseed_generators=self.reseed_generators)


def as_on_error(argument: Any) -> OnError | None:
    """The argument `on_error`; None if it is "raise"."""
    if isinstance(argument, OnError):
        return argument
    action = check_error_action("on_error", argument)
    return None if action == "raise" else OnError(action)


def action_of(policy: OnError | None) -> ErrorAction:
    """What a policy does with a sample that raises an error."""
    return "raise" if policy is None else policy.action


def as_seed(argument: Any) -> Seed:
    """The argument `seed`."""
    return argument if isinstance(argument, Seed) else Seed(argument)
