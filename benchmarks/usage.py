"""What a loader takes besides time, in a fresh program for each: processor time, page faults and memory.

python -m benchmarks.usage CASE LOADER WORKERS
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

from .cases import Case
from .loaders import Loader

__all__ = ["Usage", "measure_usage", "memory_of", "processes", "usage_of"]

_WARM_UP: Final = 2  # epochs
_PAUSE_S: Final = 0.01  # between two looks at the memory
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of a loader at work, by batch.

    Attributes:
        parent_s: processor time of the main program, with all its threads.
        tree_s: of the main program and the workers.
        parent_faults: minor page faults of the main program.
        worker_faults: those of the workers.
        peak: bytes of memory of all of them, and of all shared memory, over what there was before the loader.
    """

    parent_s: float
    tree_s: float
    parent_faults: float
    worker_faults: float
    peak: int


@dataclass(frozen=True)
class _Spent:
    cpu_s: float
    faults: int


def measure_usage(case: Case, loader: Loader, workers: int) -> Usage:
    """Starts the program and reads its answer."""
    command = [sys.executable, "-m", "benchmarks.usage", case.name, loader.name, str(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Usage(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measures one loader in one case."""
    import gluonloader.mxnet

    from .cases import CASES
    from .variants import LOADERS

    gluonloader.mxnet.patch_numpy()
    case_name, loader_name, workers = sys.argv[1:]
    loader = next(loader for loader in LOADERS if loader.name == loader_name)
    print(json.dumps(asdict(usage_of(CASES[case_name], loader, int(workers)))))


def usage_of(
    case: Case,
    loader: Loader,
    workers: int,
    *,
    counted_s: float = 1.5,
    sampled_s: float = 0.5,
    memory: Callable[[], int] | None = None,
) -> Usage:
    """What a loader takes per batch in this process; for whole epochs, and for at least so many seconds.

    Args:
        case: what is loaded.
        loader: the loader that is measured.
        workers: number of workers that the case asks for.
        counted_s: seconds over which processor time and page faults are counted.
        sampled_s: seconds over which the memory is sampled.
        memory: returns the bytes in use now; by default those of this process and all below it, and the shared memory
            of the whole machine, since a batch that is in flight may be mapped by no process.
    """
    memory = memory or _memory
    loader.imported()
    dataset = case.dataset()
    gc.collect()
    before = memory()
    with loader.open(case, dataset, loader.workers(case, workers)) as run:
        for _ in range(_WARM_UP):
            run.epoch()
        start = _spent()
        epochs = _repeat(run.epoch, counted_s)
        end = _spent()
        with _peak(memory) as peak:
            _repeat(run.epoch, sampled_s)
    return _per_batch(start, end, epochs * run.drawn, max(peak) - before)


def _repeat(epoch: Callable[[], object], seconds: float) -> int:
    start, epochs = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        epoch()
        epochs += 1
    return epochs


def _per_batch(start: Mapping[int, _Spent], end: Mapping[int, _Spent], batches: int, peak: int) -> Usage:
    none = _Spent(0.0, 0)
    cpu = {pid: (spent.cpu_s - start.get(pid, none).cpu_s) / batches for pid, spent in end.items()}
    faults = {pid: (spent.faults - start.get(pid, none).faults) / batches for pid, spent in end.items()}
    parent = os.getpid()
    return Usage(cpu[parent], sum(cpu.values()), faults[parent], sum(faults.values()) - faults[parent], peak)


def _spent() -> dict[int, _Spent]:
    """By this process and all below it. Those of workers are counted in ticks, most often of 10 ms."""
    spent = {pid: _Spent((int(stat[11]) + int(stat[12])) * _TICK, int(stat[7])) for pid, stat in processes().items()}
    spent[os.getpid()] = _Spent(time.process_time(), spent[os.getpid()].faults)
    return spent


def processes(root: int | None = None) -> dict[int, list[str]]:
    """This process, or another one, and all below it, with what /proc says of each from its state on."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
    found = [os.getpid() if root is None else root]
    for pid in found:
        found += [child for child, stat in stats.items() if int(stat[1]) == pid]
    return {pid: stats[pid] for pid in found if pid in stats}


def _memory() -> int:
    """Bytes of this process and all below it, and shared memory."""
    return memory_of("Anon", "File") + _shared_memory()


def _shared_memory() -> int:
    """Bytes of all shared memory on the machine: a batch that is in flight may be mapped by no process."""
    shared = re.findall(r"^Shmem: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return 1024 * sum(map(int, shared))


def memory_of(*kinds: str) -> int:
    """Bytes of these kinds that this process and all below it have mapped, each page shared out among those who do."""
    total = 0
    for pid in processes():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(map(int, re.findall(rf"^Pss_(?:{'|'.join(kinds)}): +(\d+) kB", rollup, re.MULTILINE)))
    return 1024 * total


@contextmanager
def _peak(memory: Callable[[], int]) -> Iterator[list[int]]:
    """A list of what was seen of the memory while the block ran."""
    seen, done = [memory()], Event()

    def look() -> None:
        while not done.wait(_PAUSE_S):
            seen.append(memory())

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main()
