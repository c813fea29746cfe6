"""The same libraries, set up in another way: fixed executors and "auto", and what is quicker in some of the cases."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from .bare import BareLoop
from .cases import CASES, Case
from .datasets import MEAN, STD, Columns, temporary_file
from .loaders import SPDL, GluonLoader, Grain, Loader, MXNet, NDArrays, Run, Tensors, Torch
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


class ImageRecordIter(Loader):
    """MXNet's native reader, on a file of the same JPEGs: threads in C++ that decode, resize and normalise.

    It makes the shorter edge 224 long and cuts out the middle, where the dataset scales both edges.
    """

    name, distribution, module = "ImageRecordIter", "mxnet", "mxnet"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        mx = self.imported()
        path = temporary_file("photos.rec")
        record = mx.recordio.MXRecordIO(str(path), "w")
        for index in range(len(dataset)):
            header = mx.recordio.IRHeader(0, index % 10, index, 0)
            record.write(mx.recordio.pack(header, dataset.files[index % len(dataset.files)]))
        record.close()
        scaled = np.multiply([MEAN, STD], 255).tolist()
        means, deviations = (dict(zip("rgb", values, strict=True)) for values in scaled)
        source = mx.io.ImageRecordIter(
            path_imgrec=str(path),
            data_shape=(3, 224, 224),
            batch_size=case.batch_size,
            resize=224,
            mirror=True,
            preprocess_threads=workers,
            verbose=False,
            **{f"mean_{colour}": value for colour, value in means.items()},
            **{f"std_{colour}": value for colour, value in deviations.items()},
        )
        yield Run(RecordBatches(source), case.batches)
        del source
        path.unlink()


class RecordBatches:
    """An epoch each time it is iterated; a batch counts when it is there."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        self._source.reset()
        for batch in self._source:
            batch.data[0].wait_to_read()
            yield batch.data[0], batch.label[0]


LOADERS: tuple[Loader, ...] = (
    GluonLoader(), Tensors(), NDArrays(), Auto(), Serial(), Threads(), Torch(), TorchWorkers(), TorchTensors(),
    TorchBatches(), MXNet(), ImageRecordIter(), Grain(), GrainThreads(), SPDL(), BareLoop(),
)  # fmt: skip
CHOICES: tuple[Loader, ...] = (Serial(), Threads(), Processes(), Auto())


def measure_choices(case: str, workers: int, rounds: int) -> list[Result]:
    """Times each fixed choice and "auto"."""
    contenders = tuple(loader.name for loader in CHOICES)
    return measure(replace(CASES[case], contenders=contenders), CHOICES, workers, rounds)
