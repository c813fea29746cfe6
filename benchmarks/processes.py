"""Reads from the system what a process and its descendants take: processor time, page faults and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds


@dataclass(frozen=True)
class Spent:
    """Processor time and minor page faults of a process since its start, and the time of its children that have ended.

    The system counts the processor time in ticks, which usually take 10 ms.
    """

    cpu_s: float
    faults: int
    ended_cpu_s: float = 0.0


def processes(root: int | None = None) -> dict[int, Spent]:
    """Returns what the process `root` and its descendants have spent, by pid. The default of `root` is this process."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()  # from the state on
        except OSError:
            continue  # the process has ended
    found = [os.getpid() if root is None else root]
    for pid in found:
        found += [child for child, stat in stats.items() if int(stat[1]) == pid]
    return {
        pid: Spent((int(stat[11]) + int(stat[12])) * _TICK, int(stat[7]), (int(stat[13]) + int(stat[14])) * _TICK)
        for pid in found
        if (stat := stats.get(pid))
    }


def memory_of(*kinds: str) -> int:
    """Returns the bytes of memory of these kinds that this process and its descendants have mapped.

    The kinds are names in /proc/PID/smaps_rollup. If several processes have mapped a page, `Pss` counts an equal share
    of the page for each process.
    """
    total = 0
    for pid in processes():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(map(int, re.findall(rf"^(?:{'|'.join(kinds)}): +(\d+) kB", rollup, re.MULTILINE)))
    return 1024 * total


def shared_memory() -> int:
    """Returns the bytes of all shared memory on the machine, since a batch in flight may be mapped by no process."""
    shared = re.findall(r"^Shmem: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return 1024 * sum(map(int, shared))


@contextmanager
def peak(memory: Callable[[], int], pause_s: float = 0.01) -> Iterator[list[int]]:
    """Samples the memory in a thread while the block runs; yields the list of the samples."""
    seen, done = [memory()], Event()

    def look() -> None:
        while not done.wait(pause_s):
            seen.append(memory())

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
