"""Rounds: each times one epoch of every loader in turn, so that a machine that drifts is unfair to none.

    measure --its turn--> program of one loader: forked from this one, with the dataset that all have
            <--seconds---

A program and its workers are stopped outside of their turns: some look for work all the time. And a loader finds in its
program what it has imported itself, and nothing of the others.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import gluonloader.mxnet

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
    programs: list[tuple[Result, _Program]] = []
    with ExitStack() as stack:
        for loader, result in zip(loaders, results, strict=True):
            if result.missing is None:
                program = _Program(case, loader, dataset, result.workers)
                stack.callback(program.end)
                result.missing = program.prepare()
                if result.missing is None:
                    programs.append((result, program))
        for _ in range(rounds):
            for result, program in programs:
                result.times.append(program.turn())
    return results


def _reason(loader: Loader, case: Case) -> str | None:
    return case.absence() if loader.name in case.contenders else UNMEASURED


class _Program:
    """The parent's side of one loader's program."""

    def __init__(self, case: Case, loader: Loader, dataset: Any, workers: int) -> None:
        self._what = f"{loader.name} in case {case.name}"
        context = get_context("fork")
        self._line, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, case, loader, dataset, workers))
        self._process.start()
        far_end.close()

    def prepare(self) -> str | None:
        """Returns when it is warm; or says why there is nothing to time."""
        missing: str | None = self._answer()
        self._signal(signal.SIGSTOP)
        return missing

    def turn(self) -> float:
        """Seconds that it took."""
        self._signal(signal.SIGCONT)
        self._line.send(True)
        seconds: float = self._answer()
        self._signal(signal.SIGSTOP)
        return seconds

    def end(self) -> None:
        """Has it close its loader."""
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # it has ended by itself
            self._line.send(False)
        self._process.join()
        self._line.close()

    def _answer(self) -> Any:
        try:
            while not self._line.poll(1):
                if not (self._process.is_alive() or self._line.poll()):  # its workers may keep the line open
                    raise EOFError
            return self._line.recv()
        except EOFError:
            raise RuntimeError(f"{self._what}: its program has ended; what it printed says why") from None

    def _signal(self, number: int) -> None:
        for pid in processes(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _serve(line: Connection, case: Case, loader: Loader, dataset: Any, workers: int) -> None:
    """The program of one loader."""
    gluonloader.mxnet.patch_numpy()  # before anything imports MXNet
    missing = loader.absence() or loader.limitation(case)
    if missing is not None:
        line.send(missing)
        return
    with ExitStack() as stack:
        timer = _timer(loader, case, dataset, workers, stack)
        for _ in range(loader.warm_up):
            timer()
        line.send(None)
        while line.recv():
            line.send(timer())


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
