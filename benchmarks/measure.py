"""Rounds: each times one epoch of every loader in turn, so that a machine that drifts is unfair to none.

The worker processes of all others are stopped meanwhile: some look for work all the time.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from .cases import Case
from .loaders import Loader, Run
from .usage import processes

__all__ = ["UNMEASURED", "Result", "measure"]

UNMEASURED: Final = "not measured in this case"

_STARTS: Final = 3  # of a loader in one round
_RESTARTS: Final = 10

Timer = Callable[[], float]


@dataclass
class Result:
    """Seconds per batch, start or restart of one loader, by round; or why there are none."""

    loader: str
    missing: str | None = None
    peer: str | None = None
    workers: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Over the rounds."""
        return statistics.median(self.times)

    def ratio_to(self, other: Result) -> float:
        """How many times longer than `other`: the median of the rounds' ratios."""
        return statistics.median(mine / its for mine, its in zip(self.times, other.times, strict=True))


def measure(case: Case, loaders: Sequence[Loader], workers: int, rounds: int) -> list[Result]:
    """One result for every loader; the first times of each are warm-up and not counted."""
    results = [
        Result(loader.name, _reason(loader, case), loader.peer, loader.workers(case, workers)) for loader in loaders
    ]
    if all(result.missing for result in results):
        return results
    dataset = case.dataset()
    with ExitStack() as stack:
        timers: list[tuple[Result, Timer, list[int]]] = []
        for loader, result in zip(loaders, results, strict=True):
            if result.missing is None:
                before = processes().keys()
                timer = _timer(loader, case, dataset, result.workers, stack)
                for _ in range(loader.warm_up):
                    timer()  # at once: who forks at the first batch does so before the next loader starts threads
                workers_of = sorted(processes().keys() - before)
                stack.callback(_send, signal.SIGCONT, workers_of)
                _send(signal.SIGSTOP, workers_of)
                timers.append((result, timer, workers_of))
        for _ in range(rounds):
            for result, timer, workers_of in timers:
                _send(signal.SIGCONT, workers_of)
                result.times.append(timer())
                _send(signal.SIGSTOP, workers_of)
    return results


def _send(number: int, pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _reason(loader: Loader, case: Case) -> str | None:
    unmeasured = None if loader.name in case.contenders else UNMEASURED
    return unmeasured or case.absence() or loader.absence() or loader.limitation(case)


def _timer(loader: Loader, case: Case, dataset: Any, workers: int, stack: ExitStack) -> Timer:
    if case.measure == "first-batch":
        return lambda: _first_batch(loader, case, dataset, workers)
    run = stack.enter_context(loader.open(case, dataset, workers))
    if case.measure == "restart":
        return lambda: _restart(run)
    return lambda: run.epoch() / case.batches


def _first_batch(loader: Loader, case: Case, dataset: Any, workers: int) -> float:
    elapsed = 0.0
    for _ in range(_STARTS):
        start = time.perf_counter()
        with loader.open(case, dataset, workers) as run:
            elapsed += _first_of_epoch(run, start)
    return elapsed / _STARTS


def _restart(run: Run) -> float:
    run.epoch()
    return sum(_first_of_epoch(run, time.perf_counter()) for _ in range(_RESTARTS)) / _RESTARTS


def _first_of_epoch(run: Run, start: float) -> float:
    """Seconds from `start` to the first batch; then reads the epoch to its end."""
    batches = iter(run.batches)
    next(batches)
    elapsed = time.perf_counter() - start
    for _ in batches:
        pass
    return elapsed
