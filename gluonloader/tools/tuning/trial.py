"""Measures a loader with one setting, in a child process that is ended if it takes too long.

Each trial starts from a copy of this process, so a trial that hangs, crashes or starts threads does not affect others.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...errors import summary_of
from ...loader import DataLoader
from ...locks import Lock
from ...randomness import Draws
from ...work.maker import held_by
from .of_torch import named_for
from .speed import Step, TimedRun, endless, run

_LEAST: Final = 0.25  # share of its time that a trial measures, even if its workers start slowly
_SENT: Final = 0.9  # share of its limit after which a trial sends what it has measured
_LOOK_S: Final = 0.02  # how often a trial checks whether it is stuck at a batch
_STUCK: Final = 10  # it is not before it has waited as long as so many usual batches take
_LEAST_BATCHES: Final = 8  # nor with fewer batches before, which would measure only the start of the workers
_WARM_UP: Final = 4  # one of so many batches before is not counted: the first ones
_CLOSING_S: Final = 0.5  # how long a trial that has reported its figures may take to close

Factory = Callable[..., DataLoader[Any]]


class IgnoredArgumentsError(ValueError):
    """A factory does not pass on its keyword arguments, so all trials would measure the same loader."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How fast a loader was with some keyword arguments.

    Attributes:
        arguments: the keyword arguments.
        samples_per_s: samples per second when all workers are busy; the median if the loader ran several times; 0 if
            there was an error.
        low, high: for a quarter of the time, the loader was slower than `low`; for a quarter, faster than `high`.
        first_batch_s: seconds from the call of the factory to the first batch.
        batch_nbytes: bytes of a batch.
        shared_nbytes: bytes of shared memory for batches; 0 without worker processes.
        worker_nbytes: private memory of the largest worker process, in bytes; 0 without worker processes, or if the
            system does not report it.
        waiting: the share of the time for batches in which the workers (or the program, without workers) waited for
            data, from 0 to 1.
        took_s: seconds that all runs took, including the start and the end of the workers.
        runs: how often the loader ran for these figures; more than once if it was compared with others at the end.
        draws: the random generators that threads share and from which samples drew, with `executor="thread"`.
        error: why there are no figures; "" without an error.
        waiting_for_core: the share of the time for batches in which they waited for a core; 0 if that is unknown.
        stuck_s: seconds that the trial had waited for a slow batch when it was ended; the figures are those of the
            batches before. 0 if there was no such batch.
    """

    arguments: Mapping[str, Any]
    samples_per_s: float = 0.0
    low: float = 0.0
    high: float = 0.0
    first_batch_s: float = 0.0
    batch_nbytes: int = 0
    shared_nbytes: int = 0
    worker_nbytes: int = 0
    waiting: float = 0.0
    took_s: float = 0.0
    runs: int = 1
    draws: tuple[str, ...] = ()
    error: str = ""
    waiting_for_core: float = 0.0
    stuck_s: float = 0.0


def measure(factory: Factory, arguments: Mapping[str, Any], seconds: float, limit_s: float, step: Step) -> Trial:
    """Measures the loader that `factory(**arguments)` returns, in a child process.

    Args:
        seconds: how long the trial takes as a whole; longer if batches are slow.
        limit_s: the trial is ended after this time.

    Raises:
        IgnoredArgumentsError: the loader has another number of workers than the arguments say.
    """
    started = time.perf_counter()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    target = _Child(factory, dict(arguments), seconds, limit_s, step, sender)
    child = multiprocessing.get_context("fork").Process(target=target)
    with warnings.catch_warnings():
        # The child does not need the other threads of this process; if one of them holds a lock, the limit helps.
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*JAX is multithreaded", RuntimeWarning)
        child.start()
    sender.close()
    trial = None
    try:
        if receiver.poll(limit_s):
            trial = receiver.recv()
        else:
            late = f"no result after {limit_s:.1f} s, so the trial was ended"
            trial = Trial(arguments, error=f"{late}: pass a larger budget, unless the loader hangs")
    except EOFError:
        pass  # the child has died
    finally:
        receiver.close()
        left_s = started + limit_s - time.perf_counter()
        wait([child.sentinel], timeout=max(0.0, min(_CLOSING_S, left_s)))
        _end(child)
    if isinstance(trial, IgnoredArgumentsError):
        raise trial
    trial = trial or Trial(arguments, error=f"its process ended with exit code {child.exitcode}")
    return replace(trial, took_s=time.perf_counter() - started)


def _end(child: BaseProcess) -> None:
    """Ends the child and its workers, which are in its process group."""
    assert child.pid is not None
    with suppress(ProcessLookupError):  # the child has not started its group yet
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


@dataclass(slots=True)
class _Child:
    """What the child process does; for the arguments see `measure`.

    Attributes:
        arrivals: when each batch was delivered, as `time.perf_counter()`.
        sent: taken by the thread that sends the result, and never released.
    """

    factory: Factory
    arguments: dict[str, Any]
    seconds: float
    limit_s: float
    step: Step
    sender: Connection
    arrivals: list[float] = field(default_factory=list)
    sent: Lock = field(default_factory=Lock)

    def __call__(self) -> None:
        os.setsid()
        # If the program itself is killed, it cannot end this process, so the system does.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.limit_s + _CLOSING_S)
        _silence()
        try:
            self._measure()
        except IgnoredArgumentsError as error:
            self._send(error)
        except BaseException as error:
            self._send(Trial(self.arguments, error=summary_of(error)))

    def _send(self, result: Trial | IgnoredArgumentsError) -> bool:
        """Sends the result unless the other thread has sent one; returns whether it did."""
        if not self.sent.acquire(blocking=False):
            return False
        self.sender.send(result)
        return True

    def _measure(self) -> None:
        started = time.perf_counter()
        with self.factory(**self.arguments) as loader:
            check_workers(loader, self.arguments)
            self.arguments = dict(named_for(loader, self.arguments))
            draws = Draws(held_by(loader.epochs.workers.job))
            draws.mark()
            threading.Thread(target=self._watch, args=(loader, draws, started), daemon=True).start()
            batches = self._recorded(endless(loader))
            next(batches)
            first_batch_s = self.arrivals[0] - started
            window, left_s = max(1, loader.prefetch), max(self.seconds - first_batch_s, _LEAST * self.seconds)
            deadline = started + _SENT * self.limit_s
            measured = run(batches, left_s, self.step, workers=loader.num_workers, window=window, deadline=deadline)
            self._send(self._trial(loader, draws, measured, first_batch_s))

    def _recorded(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.arrivals.append(time.perf_counter())
            yield batch
            del batch  # so that its memory can be reused

    def _watch(self, loader: DataLoader[Any], draws: Draws, started: float) -> None:
        """Ends the trial at a batch that takes as long as a whole trial should; the batches before it are measured.

        Otherwise one slow sample would end the trials of all settings that are fast enough to reach it, and the search
        would choose a setting that is too slow to reach it.
        """
        least = max(_LEAST_BATCHES, 2 * loader.num_workers)
        while True:
            time.sleep(_LOOK_S)
            if not self.arrivals:
                continue
            waited_s = time.perf_counter() - self.arrivals[-1]
            if waited_s <= self.seconds:
                continue
            ends = self.arrivals[len(self.arrivals) // _WARM_UP :]
            measured = TimedRun(ends, [after - before for before, after in pairwise(ends)])
            if measured.batches >= least and waited_s > _STUCK / measured.rate:
                trial = self._trial(loader, draws, measured, self.arrivals[0] - started)
                if self._send(replace(trial, stuck_s=waited_s)):
                    os._exit(0)
                return

    def _trial(self, loader: DataLoader[Any], draws: Draws, measured: TimedRun, first_batch_s: float) -> Trial:
        stats, found = loader.stats(), tuple(draws.found())
        if found and stats.executor == "thread":  # threads draw from the generators of this process
            names = " and ".join(found)
            shared = f"samples drew from {names}, which threads share, so runs would differ and not resume exactly"
            return Trial(self.arguments, draws=found, error=f"{shared}: draw from gluonloader.get_rng()")
        samples = stats.samples / stats.batches
        low, high = np.percentile(measured.rates(burst=max(1, loader.prefetch)), [25, 75]).tolist()
        return Trial(
            self.arguments,
            samples_per_s=samples * measured.rate,
            low=samples * min(low, measured.rate),  # a few long pauses make the mean lower than most parts
            high=samples * max(high, measured.rate),
            first_batch_s=first_batch_s,
            batch_nbytes=stats.nbytes // stats.batches,
            shared_nbytes=0 if stats.memory is None else stats.memory.nbytes,
            worker_nbytes=_largest_worker(),
            waiting=stats.waiting,
            waiting_for_core=stats.waiting_for_core,
        )


def check_workers(loader: DataLoader[Any], arguments: Mapping[str, Any]) -> None:
    """Raises an IgnoredArgumentsError if a factory has ignored the number of workers in its arguments."""
    found, expected = loader.num_workers, arguments.get("num_workers")
    if expected not in (None, found):
        raise IgnoredArgumentsError(
            f"factory: called with num_workers={expected}, it returned a loader with num_workers={found}; pass on its "
            "keyword arguments: def make(**options): return DataLoader(dataset, 64, **options)"
        )


def _silence() -> None:
    """Discards what this process prints, since all trials would print the same."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]


def _largest_worker() -> int:
    """The private memory of the largest process that this process has started, in bytes; 0 if that is unknown."""
    session, largest = os.getsid(0), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            if int(folder.name) != os.getpid() and os.getsid(int(folder.name)) == session:
                kilobytes = re.findall(r"^Private_\w+: +(\d+) kB$", (folder / "smaps_rollup").read_text(), re.MULTILINE)
                largest = max(largest, 1024 * sum(map(int, kilobytes)))
    return largest
