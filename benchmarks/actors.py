"""Ray: compares workers that are actors of Ray with local processes and with Ray Data, all on this machine.

jpeg    decodes, crops and normalizes images, in actors and in local processes; jpeg-large: larger images
mnist   small samples in memory, in actors and by Ray Data; a batch takes less time to make than to send

Ray and its processes run all the time. Ray Data reads mnist in two ways: row by row, which is the same work as a
dataset with `__getitem__`; and from an array that lies in Ray's store already, which is as little work as possible.
"""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from gluonloader import DataLoader

from .cases import CASES, Case
from .harness import Figures, Measure, Table, Topic
from .loaders import Run
from .report import time_of

_WARM_UP: Final = 3  # the pages of Ray's store are slow at their first use


def run(options: Namespace) -> Iterator[Table]:
    """Yields a table for each case; its loaders stay open for all rounds."""
    for case in (CASES[name] for name in options.names):
        dataset = case.dataset()  # before Ray starts, since this forks
        samples = [dataset[index] for index in range(len(dataset))] if case.name == "mnist" else dataset
        with ExitStack() as stack:
            loaders: dict[str, Any] = {"process": None, "ray": None}
            for name in loaders:
                loader: Any = DataLoader(samples, case.batch_size, num_workers=options.workers, executor=name)  # type: ignore[arg-type]
                loaders[name] = stack.enter_context(loader)
            rows: dict[str, Measure | str] = {}
            try:
                loaders |= _ray_data(samples, case.batch_size, options.workers) if case.name == "mnist" else {}
            except ImportError as error:
                rows["Ray Data"] = f"cannot be imported: {error}"
            rows |= {name: partial(_epoch, Run(loader, case.batches), case) for name, loader in loaders.items()}
            yield Table(f"{case.name}: {case.what}", rows, {"per batch": time_of}, base="ray", warm_up=_WARM_UP)


def _epoch(run: Run, case: Case) -> Figures:
    return {"per batch": run.epoch() / case.batches}


class RayData:
    """Iterates over an epoch of a dataset of Ray Data each time that it is iterated."""

    def __init__(self, dataset: Any, batch_size: int, workers: int) -> None:
        self._read = partial(dataset.iter_batches, batch_size=batch_size, prefetch_batches=2 * workers)

    def __iter__(self) -> Iterator[Any]:
        yield from self._read()


def _ray_data(samples: list[Any], batch_size: int, workers: int) -> dict[str, Iterable[Any]]:
    data: Any = importlib.import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False

    def read(row: dict[str, Any]) -> dict[str, Any]:
        image, label = samples[row["id"]]
        return {"image": image, "label": label}

    rows = data.range(len(samples)).map(read)
    stored = data.from_items([{"image": image, "label": label} for image, label in samples]).materialize()
    return {
        "Ray Data, by rows": RayData(rows, batch_size, workers),
        "Ray Data, stored": RayData(stored, batch_size, workers),
    }


TOPIC: Final = Topic(run, rounds=7, names=("jpeg", "jpeg-large", "mnist"), packages=("ray",))
