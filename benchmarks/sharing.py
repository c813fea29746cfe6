"""Ranks of one machine with workers of their own, and with workers that they share: memory, and time per batch.

python -m benchmarks.sharing
python -m benchmarks.sharing --samples 100000 --rounds 2

The dataset is a list of tuples of a path and a label. Every worker that reads a list gets a private copy of its pages
in time, because reading an object changes its count of references. *Memory* is what all processes of a program take
while they read, without what the same processes take before there is a dataset. A page that several processes map
counts once.

*Time per batch* is measured with the same list. All programs read in turn, in rounds, and the figure is the median over
the rounds of the slowest rank.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

from gluonloader import DataLoader, Ranks

from .processes import memory_of
from .report import machine, time_of

_BATCH: Final = 32
_BATCHES: Final = 2000  # of each rank, for the time


class Paths:
    """Samples that are found by a path and have a label; no file is read."""

    def __init__(self, length: int) -> None:
        self.rows = [
            (f"/data/train/class{number % 1000:04}/image{number:08}.jpeg", number % 1000) for number in range(length)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        path, label = self.rows[index]
        return len(path) + label


@dataclass(frozen=True)
class Program:
    """How many ranks read, each with how many workers."""

    name: str
    ranks: int
    workers: int
    shares: bool = False
    as_function: bool = False


PROGRAMS: Final = (
    Program("1 rank, 2 workers", 1, 2),
    Program("4 ranks, 2 workers each", 4, 2),
    Program("4 ranks share 2 workers", 4, 2, shares=True),
    Program("4 ranks share 2 workers, dataset as a function", 4, 2, shares=True, as_function=True),
)


def read(connection: Connection, program: Program, rank: int, samples: int) -> None:
    """Runs in the process of a rank: does what the connection says, and answers."""
    connection.send(None)
    connection.recv()
    build: Callable[[], Paths] = lambda: Paths(samples)  # noqa: E731  # forked workers inherit it
    dataset: Any = build if program.as_function else build()
    ranks = Ranks(rank, program.ranks, share="node" if program.shares else None)
    with DataLoader(
        dataset, _BATCH, shuffle=True, seed=0, num_workers=program.workers, start_method="fork", ranks=ranks
    ) as loader:
        for _ in loader:  # so that the workers have read every object
            pass
        while True:
            connection.send(None)
            if not connection.recv():
                return
            start, count = time.perf_counter(), 0
            for _ in islice(loader, _BATCHES):
                count += 1
            connection.send((time.perf_counter() - start) / count)
            connection.recv()


class Running:
    """A program with all its ranks."""

    def __init__(self, program: Program, samples: int) -> None:
        self.program, self.memory = program, 0
        context = get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(program.ranks):
            mine, theirs = context.Pipe()
            process = context.Process(target=read, args=(theirs, program, rank, samples))
            process.start()
            theirs.close()
            self._connections.append(mine)
            self._processes.append(process)
        self._receive()
        before = memory_of("Pss_Anon", "Pss_File", "Pss_Shmem")
        self._send(True)
        self._receive()
        self.memory = memory_of("Pss_Anon", "Pss_File", "Pss_Shmem") - before

    def _send(self, what: bool) -> None:
        for connection in self._connections:
            connection.send(what)

    def _receive(self) -> list[Any]:
        return [connection.recv() for connection in self._connections]

    def batch_s(self) -> float:
        """Seconds that a batch of the slowest rank takes."""
        self._send(True)
        seconds = float(max(self._receive()))
        self._send(True)
        self._receive()
        return seconds

    def end(self) -> None:
        self._send(False)
        for process in self._processes:
            process.join()


def measure(samples: int, rounds: int) -> list[str]:
    """The lines of the table."""
    times: dict[str, list[float]] = {program.name: [] for program in PROGRAMS}
    memory: dict[str, int] = {}
    for _ in range(rounds):
        for program in PROGRAMS:
            running = Running(program, samples)
            memory.setdefault(program.name, running.memory)
            times[program.name].append(running.batch_s())
            running.end()
    one = memory[PROGRAMS[0].name]
    return [
        f"{program.name:48} {memory[program.name] / 1e6:7,.0f} MB {memory[program.name] / one:6.2f} "
        f"{time_of(median(times[program.name])):>9} {time_of(median(times[program.name]) / program.ranks):>9}"
        for program in PROGRAMS
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples in the list (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (default: %(default)s)")
    given = parser.parse_args(arguments)
    print(machine([]), end="\n\n")
    print(f"{given.samples:,} samples, batches of {_BATCH}, {given.rounds} rounds\n")
    print(f"{'':48} {'memory':>10} {'ratio':>6} {'a batch':>9} {'of all':>9}")
    for line in measure(given.samples, given.rounds):
        print(line)


if __name__ == "__main__":
    main()
