"""Several programs that read the same batches: with loaders of their own, and from one server.

*JPEG*: each program gets all batches of 32 JPEGs, decoded and cropped to 3 x 224 x 224 float32. The figure is the
processor time of all processes together for one batch that each program gets. A program of torch has the same dataset
in `torch.utils.data.DataLoader`; TensorSocket (if it is installed) sends torch's batches to its consumers.

*Hand-over*: how long `next` takes for a batch that is ready, in a program with its own loader and in one that is
attached to a server. The program computes before each call, so that the batch is ready.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice, repeat
from statistics import median
from typing import Any, Final

import numpy as np

import gluonloader as gl

from .datasets import photos
from .harness import Figures, Measure, Table, Topic
from .processes import processes
from .programs import Program, together
from .report import time_of

_BATCH: Final = 32
_FILES: Final = 64  # different JPEGs
_LIMIT_S: Final = 60.0  # how long a reader may take for its first epoch
_PAUSE_S: Final = 0.03  # before each hand-over
_NUMBERS: Final = count()  # of servers

Open = Callable[[int, int, str], Any]  # from the number of batches in an epoch, the workers and the name of the server


@dataclass(frozen=True)
class Job:
    """Programs that read the same batches.

    Attributes:
        readers: how many they are.
        read: returns what a reader iterates over.
        serve: generator function of the server; None if each reader has a loader of its own.
        needs: a package.
    """

    readers: int
    read: Open
    serve: Open | None = None
    needs: str = "numpy"


def run(options: Namespace) -> Iterator[Table]:
    """Yields the tables."""
    rows: dict[str, Measure | str] = {}
    for name, job in JOBS.items():
        absent = importlib.util.find_spec(job.needs) is None
        rows[name] = f"{job.needs} is not installed" if absent else partial(_cpu_of, job, options)
    yield Table(f"JPEG, {options.batches} batches of {_BATCH}", rows, {"CPU": time_of}, base="1 program, own loader")
    for numbers in (100, 150_528):
        hand_over: dict[str, Measure | str] = {
            "own loader": partial(_own, numbers, options),
            "attached": partial(_attached, numbers, options),
        }
        yield Table(f"Hand-over of a batch of {numbers * 4 * _BATCH:,} bytes", hand_over, {"next": time_of})


def _new_name() -> str:
    return f"benchmark.{os.getpid()}.{next(_NUMBERS)}"


# -- JPEG --------------------------------------------------------------------------------------------------------------


def _cpu_of(job: Job, options: Namespace) -> Figures:
    """Returns the processor time of all processes for each batch of the second epoch."""
    arguments = options.batches, options.workers, _new_name()
    with ExitStack() as stack:
        programs = [] if job.serve is None else [stack.enter_context(Program(job.serve, *arguments, method="spawn"))]
        readers = [stack.enter_context(Program(_read, job, *arguments, method="spawn")) for _ in range(job.readers)]
        try:
            for reader in readers:
                reader.answer(_LIMIT_S)
        except TimeoutError:
            return {}
        before = _spent([*programs, *readers])
        together(readers)
        return {"CPU": (_spent([*programs, *readers]) - before) / options.batches}


def _read(job: Job, batches: int, workers: int, name: str) -> Iterator[None]:
    endless = chain.from_iterable(repeat(job.read(batches, workers, name)))
    while True:
        for _ in islice(endless, batches):
            pass
        yield


def _spent(programs: Iterable[Program]) -> float:
    found = {pid: spent for program in programs for pid, spent in processes(program.pid).items()}
    return sum(spent.cpu_s for spent in found.values())


def _loader(batches: int, workers: int, name: str) -> gl.DataLoader[Any]:
    return gl.DataLoader(photos(500, 375, _FILES)(batches * _BATCH), _BATCH, num_workers=workers, seed=0)


def _serve(batches: int, workers: int, name: str) -> Iterator[None]:
    with gl.serve(_loader(batches, workers, name), name):
        yield


def _attach(batches: int, workers: int, name: str) -> Any:
    return gl.attach(name, wait=60)


def _torch(batches: int, workers: int, name: str) -> Any:
    from torch.utils.data import DataLoader

    dataset = photos(500, 375, _FILES)(batches * _BATCH)
    return DataLoader(dataset, _BATCH, num_workers=workers, persistent_workers=True, multiprocessing_context="fork")


def _serve_tensorsocket(batches: int, workers: int, name: str) -> Iterator[None]:
    producer = importlib.import_module("tensorsocket").TensorProducer(_torch(batches, workers, name))
    for _ in chain.from_iterable(repeat(producer)):
        pass
    yield  # never


def _tensorsocket(batches: int, workers: int, name: str) -> Any:
    return importlib.import_module("tensorsocket").TensorConsumer(batch_size=_BATCH)


JOBS: Final[Mapping[str, Job]] = {
    "1 program, own loader": Job(1, _loader),
    "4 programs, own loaders": Job(4, _loader),
    "1 program, attached": Job(1, _attach, _serve),
    "4 programs, attached": Job(4, _attach, _serve),
    "1 program, torch": Job(1, _torch, needs="torch"),
    "4 programs, torch": Job(4, _torch, needs="torch"),
    "4 programs, TensorSocket": Job(4, _tensorsocket, _serve_tensorsocket, "tensorsocket"),
}


# -- hand-over ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filled:
    """Samples that are a filled array of float32; a batch of 32 takes 32 times as many bytes."""

    numbers: int

    def __len__(self) -> int:
        return 400 * _BATCH

    def __getitem__(self, index: int) -> Any:
        return np.full(self.numbers, index, np.float32)


def _own(numbers: int, options: Namespace) -> Figures:
    with gl.DataLoader(Filled(numbers), _BATCH, num_workers=options.workers) as loader:
        return _waits(loader, options.batches)


def _attached(numbers: int, options: Namespace) -> Figures:
    name = _new_name()
    with (
        Program(_serve_filled, numbers, options.workers, name, method="spawn"),
        gl.attach(name, wait=60) as loader,
    ):
        return _waits(loader, options.batches)


def _serve_filled(numbers: int, workers: int, name: str) -> Iterator[None]:
    with gl.serve(gl.DataLoader(Filled(numbers), _BATCH, num_workers=workers), name):
        yield


def _waits(reader: Iterable[Any], batches: int) -> Figures:
    """Returns the median time of `next`, in seconds, for batches that are ready."""
    iterator, times = iter(reader), []
    for _ in range(batches):
        until = time.perf_counter() + _PAUSE_S
        while time.perf_counter() < until:  # computes; a core that sleeps would need time to wake up
            pass
        start = time.perf_counter()
        batch = next(iterator)
        times.append(time.perf_counter() - start)
        del batch
    return {"next": median(times[batches // 4 :])}


TOPIC: Final = Topic(run, options={"batches": (60, "batches of JPEGs in an epoch")}, packages=("torch", "tensorsocket"))
