"""Times the loaders in rounds. A round times an epoch of each loader, so that all loaders see the same machine load.

    measure --"time an epoch"--> program of one loader, forked from this program with the same dataset
            <-----seconds-------

While another loader is timed, a program and its workers are stopped, because some libraries poll for work all the time.
Each loader has a separate program, so that the imports of one library cannot influence another library.
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
from .processes import processes

__all__ = ["UNMEASURED", "Result", "make_timer", "measure"]

UNMEASURED: Final = "not measured in this case"

_STARTS: Final = 3  # timed starts of a loader in each round
_RESTARTS: Final = 10  # timed restarts of a loader in each round

Timer = Callable[[], float]


@dataclass
class Result:
    """The seconds per batch, start or restart of a loader in each round; or `missing`, why it was not timed."""

    loader: str
    missing: str | None = None
    peer: str | None = None
    workers: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.times)

    def ratio_to(self, other: Result) -> float:
        """Returns the time as a multiple of the time of `other`: the median of the ratios of each round."""
        return statistics.median(mine / its for mine, its in zip(self.times, other.times, strict=True))


def measure(case: Case, loaders: Sequence[Loader], workers: int, rounds: int) -> list[Result]:
    """Returns a result for each loader. The first epochs of a loader warm it up, and are not counted."""
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
    """Controls the program of a loader from this program."""

    def __init__(self, case: Case, loader: Loader, dataset: Any, workers: int) -> None:
        self._what = f"{loader.name} in case {case.name}"
        context = get_context("fork")
        self._connection, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, case, loader, dataset, workers))
        self._process.start()
        far_end.close()

    def prepare(self) -> str | None:
        """Waits until the loader is warmed up. Returns None, or why the loader cannot be timed."""
        missing: str | None = self._answer()
        self._signal(signal.SIGSTOP)
        return missing

    def turn(self) -> float:
        """Times the loader once, and returns the seconds."""
        self._signal(signal.SIGCONT)
        self._connection.send(True)
        seconds: float = self._answer()
        self._signal(signal.SIGSTOP)
        return seconds

    def end(self) -> None:
        """Makes the program close its loader, and waits until the program ends."""
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # the program has ended already
            self._connection.send(False)
        self._process.join()
        self._connection.close()

    def _answer(self) -> Any:
        try:
            while not self._connection.poll(1):
                # The workers of the program may keep the connection open after the program has ended.
                if not (self._process.is_alive() or self._connection.poll()):
                    raise EOFError
            return self._connection.recv()
        except EOFError:
            raise RuntimeError(f"{self._what}: the program of this loader has ended; read its output above") from None

    def _signal(self, number: int) -> None:
        for pid in processes(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _serve(connection: Connection, case: Case, loader: Loader, dataset: Any, workers: int) -> None:
    """Runs the program of a loader."""
    gluonloader.mxnet.patch_numpy()  # this must run before MXNet is imported
    missing = loader.absence() or loader.limitation(case)
    if missing is not None:
        connection.send(missing)
        return
    with ExitStack() as stack:
        timer = make_timer(loader, case, dataset, workers, stack)
        for _ in range(loader.warm_up):
            timer()
        connection.send(None)
        while connection.recv():
            connection.send(timer())


def make_timer(loader: Loader, case: Case, dataset: Any, workers: int, stack: ExitStack) -> Timer:
    """Returns a function that times the loader once, which is set up until the end of `stack`."""
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
    """Returns the seconds from `start` to the first batch; then reads the epoch to its end."""
    batches = iter(run.batches)
    next(batches)
    elapsed = time.perf_counter() - start
    for _ in batches:
        pass
    return elapsed
