"""Several programs that read the same batches: with loaders of their own, and from one server.

python -m benchmarks.serving
python -m benchmarks.serving --rounds 1 --batches 20

*JPEG*: each program gets all batches of 32 JPEGs, decoded and cropped to 3 x 224 x 224 float32. The figure is the
processor time of all processes together for one batch that each program gets. A program of torch has the same dataset
in `torch.utils.data.DataLoader`; TensorSocket (if it is installed) sends torch's batches to its consumers.

*Hand-over*: how long `next` takes for a batch that is ready, in a program with its own loader and in one that is
attached to a server. The program computes before each call, so that the batch is ready.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import numpy as np

import gluonloader as gl

from .datasets import photos
from .processes import processes
from .report import machine, time_of

_BATCH: Final = 32
_WORKERS: Final = 2
_FILES: Final = 64  # different JPEGs
_LIMIT_S: Final = 60.0  # how long a reader may take for an epoch
_PAUSE_S: Final = 0.03  # before each hand-over

Read = Callable[[int], Iterable[Any]]


@dataclass(frozen=True)
class Program:
    """Processes that read the same batches.

    Attributes:
        serve: runs in a process of its own and serves; None if each reader has a loader of its own.
        read: returns what a reader iterates over; its argument is the number of batches in an epoch.
        needs: a package.
    """

    name: str
    readers: int
    serve: Callable[[int], object] | None
    read: Read
    needs: str = "numpy"


def loader_of(batches: int) -> gl.DataLoader[Any]:
    return gl.DataLoader(photos(500, 375, _FILES)(batches * _BATCH), _BATCH, num_workers=_WORKERS, seed=0)


def torchs_loader(batches: int) -> Any:
    from torch.utils.data import DataLoader

    dataset = photos(500, 375, _FILES)(batches * _BATCH)
    return DataLoader(dataset, _BATCH, num_workers=_WORKERS, persistent_workers=True, multiprocessing_context="fork")


def serve_gluonloader(batches: int) -> None:
    gl.serve(loader_of(batches), _name()).wait()


def attached(batches: int) -> Iterable[Any]:
    return gl.attach(_name(), wait=60)


def serve_tensorsocket(batches: int) -> None:
    producer = importlib.import_module("tensorsocket").TensorProducer(torchs_loader(batches))
    while True:
        for _ in producer:
            pass


def tensorsockets(batches: int) -> Iterable[Any]:
    consumer: Iterable[Any] = importlib.import_module("tensorsocket").TensorConsumer(batch_size=_BATCH)
    return consumer


def _name() -> str:
    return f"benchmark.{os.environ['GLUONLOADER_BENCHMARK']}"


PROGRAMS: Final = (
    Program("1 program, own loader", 1, None, loader_of),
    Program("4 programs, own loaders", 4, None, loader_of),
    Program("1 program, attached", 1, serve_gluonloader, attached),
    Program("4 programs, attached", 4, serve_gluonloader, attached),
    Program("1 program, torch", 1, None, torchs_loader, "torch"),
    Program("4 programs, torch", 4, None, torchs_loader, "torch"),
    Program("4 programs, TensorSocket", 4, serve_tensorsocket, tensorsockets, "tensorsocket"),
)


def read(connection: Connection, program: Program, batches: int) -> None:
    """Runs in a reader: reads an epoch each time that the connection says so."""
    reader = program.read(batches)
    while True:
        count = sum(1 for _ in islice(endless(reader), batches))
        connection.send(count)
        connection.recv()


def endless(reader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from reader


def run_server(program: Program, batches: int) -> None:
    assert program.serve is not None
    program.serve(batches)


class Running:
    """A program with all its processes."""

    def __init__(self, program: Program, batches: int) -> None:
        os.environ["GLUONLOADER_BENCHMARK"] = f"{os.getpid()}.{time.monotonic_ns()}"
        context = get_context("spawn")
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        if program.serve is not None:
            self._start(context, run_server, program, batches)
        for _ in range(program.readers):
            mine, theirs = context.Pipe()
            self._connections.append(mine)
            self._start(context, read, theirs, program, batches)
            theirs.close()

    def warm_up(self) -> None:
        """Waits for the end of the first epoch."""
        self._receive()

    def _start(self, context: Any, target: Callable[..., None], *arguments: Any) -> None:
        process = context.Process(target=target, args=arguments)
        process.start()
        self._processes.append(process)

    def _receive(self) -> int:
        counts = []
        for connection in self._connections:
            if not connection.poll(_LIMIT_S):
                raise TimeoutError(f"a reader has not finished within {_LIMIT_S:g} s")
            counts.append(int(connection.recv()))
        return min(counts)

    def cpu_s(self) -> float:
        """Processor time of all processes for each batch."""
        before = _spent(process.pid for process in self._processes)
        for connection in self._connections:
            connection.send(None)
        batches = self._receive()
        return (_spent(process.pid for process in self._processes) - before) / batches

    def end(self) -> None:
        for process in reversed(self._processes):
            _end(process)


def _end(process: Any) -> None:
    """Kills a process and those that it has started."""
    for pid in processes(process.pid):
        if pid != process.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.kill()
    process.join()


def _spent(roots: Iterable[int | None]) -> float:
    found = {pid: spent for root in roots for pid, spent in processes(root).items()}
    return sum(spent.cpu_s for spent in found.values())


# -- hand-over ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filled:
    """Samples that are a filled array of float32; a batch of 32 takes 32 times as many bytes."""

    numbers: int

    def __len__(self) -> int:
        return 400 * _BATCH

    def __getitem__(self, index: int) -> Any:
        return np.full(self.numbers, index, np.float32)


def filled(numbers: int) -> gl.DataLoader[Any]:
    return gl.DataLoader(Filled(numbers), _BATCH, num_workers=_WORKERS)


def serve_filled(numbers: int, name: str) -> None:
    gl.serve(filled(numbers), name).wait()


def waits(reader: Iterable[Any], count: int) -> float:
    """The median time of `next`, in seconds, for batches that are ready."""
    iterator, times = iter(reader), []
    for _ in range(count):
        until = time.perf_counter() + _PAUSE_S
        while time.perf_counter() < until:  # computes; a core that sleeps would need time to wake up
            pass
        start = time.perf_counter()
        batch = next(iterator)
        times.append(time.perf_counter() - start)
        del batch
    return median(times[count // 4 :])


def hand_over(numbers: int, count: int) -> dict[str, float]:
    """The time of `next` with an own loader, and attached to a server."""
    found = {}
    with filled(numbers) as loader:
        found["own loader"] = waits(loader, count)
    name = f"benchmark.{os.getpid()}.{numbers}"
    process = get_context("spawn").Process(target=serve_filled, args=(numbers, name))
    process.start()
    with gl.attach(name, wait=60) as attached_loader:
        found["attached"] = waits(attached_loader, count)
    _end(process)
    return found


# ----------------------------------------------------------------------------------------------------------------------


def measure(rounds: int, batches: int) -> list[str]:
    """The lines of the table of JPEGs."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for program in PROGRAMS:
            if importlib.util.find_spec(program.needs) is None:
                continue
            running = Running(program, batches)
            try:
                running.warm_up()
                found.setdefault(program.name, []).append(running.cpu_s())
            except TimeoutError as error:
                print(f"{program.name}: {error}")
            finally:
                running.end()
    one = median(found[PROGRAMS[0].name])
    return [
        f"{name:28}{time_of(median(times)):>10}{min(times) / one:8.2f} to {max(times) / one:.2f}"
        for name, times in found.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batches", type=int, default=60, help="batches of JPEGs in an epoch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (default: %(default)s)")
    given = parser.parse_args(arguments)
    print(machine([]), end="\n\n")
    print(f"JPEG: batches of {_BATCH}, {_WORKERS} workers in each loader, {given.rounds} rounds\n")
    print(f"{'':28}{'CPU':>10}   ratio, from to")
    for line in measure(given.rounds, given.batches):
        print(line)
    for numbers in (100, 150_528):
        print(f"\nHand-over of a batch of {numbers * 4 * _BATCH:,} bytes\n")
        rows = [hand_over(numbers, given.batches) for _ in range(given.rounds)]
        for name in rows[0]:
            times = [row[name] for row in rows]
            print(f"{name:28}{time_of(median(times)):>10}   {time_of(min(times))} to {time_of(max(times))}")


if __name__ == "__main__":
    main()
