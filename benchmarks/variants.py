"""The same libraries, set up in another way: fixed executors and "auto", and what is quicker in some of the cases."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from .bare import BareLoop
from .cases import CASES, Case
from .datasets import Columns
from .decoding import GluonVision, ImageRecordIter, Pipeline, ScaledPipeline, SPDLDecoder
from .loaders import SPDL, GluonLoader, Grain, Loader, MXNet, NDArrays, OneImport, Tensors, Torch
from .measure import Result, measure

__all__ = ["CHOICES", "LOADERS", "measure_choices"]


class Auto(GluonLoader):
    """gluonloader chooses the executor, and how many workers where the others have none."""

    name, peer = "auto", "torch"
    warm_up = 4  # it has chosen by then

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers or "auto", "executor": "auto"}


class Serial(GluonLoader):
    """Each batch is made when it is asked for."""

    name = "serial"

    def workers(self, case: Case, workers: int) -> int:
        return 0


class Threads(GluonLoader):
    name = "threads"

    def workers(self, case: Case, workers: int) -> int:
        return workers

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers, "executor": "thread"}


class Processes(GluonLoader):
    name = "processes"

    def workers(self, case: Case, workers: int) -> int:
        return workers


class TorchWorkers(Torch):
    """With workers where the others have none."""

    name = "torch workers"

    def workers(self, case: Case, workers: int) -> int:
        return workers


class TorchTensors(Torch):
    """Its own dataset of tensors."""

    name = "torch tensors"

    def _source(self, case: Case, dataset: Columns) -> dict[str, Any]:
        tensors = map(importlib.import_module("torch").from_numpy, dataset.columns)
        return super()._source(case, self.imported().TensorDataset(*tensors))


class TorchBatches(Torch):
    """A sampler of batches as its sampler, and no batching: the dataset gets lists of indices, and arrays give batches.

    Its documentation shows this for datasets that read in bulk.
    """

    name = "torch batches"

    def _source(self, case: Case, dataset: Columns) -> dict[str, Any]:
        data = self.imported()
        order = data.RandomSampler(dataset) if case.shuffled else data.SequentialSampler(dataset)
        return {
            "dataset": dataset,
            "batch_size": None,
            "sampler": data.BatchSampler(order, case.batch_size, drop_last=False),
        }


class GrainThreads(Grain):
    """Threads that each make a whole batch."""

    name = "Grain threads"

    def _read(self, batches: Any, workers: int) -> Any:
        return batches.to_iter_dataset(self.imported().ReadOptions(num_threads=workers, prefetch_buffer_size=4))


LOADERS: tuple[Loader, ...] = (
    GluonLoader(), Tensors(), NDArrays(), Auto(), Serial(), Threads(), OneImport(), Torch(), TorchWorkers(),
    TorchTensors(), TorchBatches(), Pipeline(), ScaledPipeline(), MXNet(), GluonVision(), ImageRecordIter(), Grain(),
    GrainThreads(), SPDL(), SPDLDecoder(), BareLoop(),
)  # fmt: skip
CHOICES: tuple[Loader, ...] = (Serial(), Threads(), Processes(), Auto())


def measure_choices(case: str, workers: int, rounds: int) -> list[Result]:
    """Times each fixed choice and "auto"."""
    contenders = tuple(loader.name for loader in CHOICES)
    return measure(replace(CASES[case], contenders=contenders), CHOICES, workers, rounds)
