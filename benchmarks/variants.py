"""Sets up the same libraries in other ways: fixed executors, "auto", and ways that are faster in some cases."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from .cases import CASES, Case
from .datasets import Columns
from .decoding import GluonVision, ImageRecordIter, Pipeline, ScaledPipeline, SPDLDecoder
from .limits import BareLoop, PlainCopy
from .loaders import SPDL, GluonLoader, Grain, Loader, MXNet, NDArrays, OneImport, Tensors, Torch
from .measure import Result, measure


class Auto(GluonLoader):
    """gluonloader with executor="auto". If the other loaders have no workers, it also chooses the number of workers."""

    name, peer = "auto", "torch"
    warm_up = 4  # after these epochs, the loader has chosen the executor

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers or "auto", "executor": "auto"}


class Serial(GluonLoader):
    """gluonloader with the serial executor, which makes each batch when it is asked for."""

    name = "serial"

    def workers(self, case: Case, workers: int) -> int:
        return 0


class Threads(GluonLoader):
    name, always_works = "threads", True

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers, "executor": "thread"}


class Processes(GluonLoader):
    name, always_works = "processes", True


class TorchWorkers(Torch):
    """torch with workers, also in cases in which the other loaders have no workers."""

    name, always_works = "torch workers", True


class TorchTensors(Torch):
    """torch with its dataset of tensors."""

    name = "torch tensors"

    def _source(self, case: Case, dataset: Columns) -> dict[str, Any]:
        tensors = map(importlib.import_module("torch").from_numpy, dataset.columns)
        return super()._source(case, self.imported().TensorDataset(*tensors))


class TorchBatches(Torch):
    """torch with a batch sampler as `sampler`, and without batching: the dataset is indexed with lists of indices.

    The documentation of torch recommends this for datasets that can read many samples at once.
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
    """Grain with threads; each thread makes a whole batch."""

    name = "Grain threads"

    def _read(self, batches: Any, workers: int) -> Any:
        return batches.to_iter_dataset(self.imported().ReadOptions(num_threads=workers, prefetch_buffer_size=4))


LOADERS: tuple[Loader, ...] = (
    GluonLoader(), Tensors(), NDArrays(), Auto(), Serial(), Threads(), OneImport(), Torch(), TorchWorkers(),
    TorchTensors(), TorchBatches(), Pipeline(), ScaledPipeline(), MXNet(), GluonVision(),
    ImageRecordIter(), Grain(), GrainThreads(), SPDL(), SPDLDecoder(), BareLoop(), PlainCopy(),
)  # fmt: skip
CHOICES: tuple[Loader, ...] = (Serial(), Threads(), Processes(), Auto())


def measure_choices(case: str, workers: int, rounds: int) -> list[Result]:
    """Times each fixed executor and "auto"."""
    contenders = tuple(loader.name for loader in CHOICES)
    return measure(replace(CASES[case], contenders=contenders), CHOICES, workers, rounds)
