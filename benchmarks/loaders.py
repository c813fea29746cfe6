"""Who loads it: one class for each library, set up as its own documentation advises for data in memory.

A library is imported only when it is used, so any subset of them may be installed. What a loader gives stays in the
library's own kind of array, and nobody looks into it. gluonloader takes part three times: with NumPy arrays out, with
torch's tensors, and as the drop-in for MXNet's loader with its NDArrays.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, ClassVar

import numpy as np

import gluonloader
import gluonloader.mxnet

from .cases import Array, Case, fill_rows, pad
from .datasets import Columns

__all__ = [
    "SPDL",
    "Chunks",
    "EndlessRun",
    "GluonLoader",
    "Grain",
    "Loader",
    "MXNet",
    "NDArrays",
    "OneImport",
    "Run",
    "Tensors",
    "Torch",
    "for_ever",
]


class Run:
    """A loader that is set up: `batches` gives an epoch each time it is iterated."""

    def __init__(self, batches: Iterable[Any], count: int) -> None:
        self.batches = batches
        self.drawn = count  # batches that one call of `epoch` takes
        self._count = count

    def epoch(self) -> float:
        """Seconds for one epoch."""
        return self._drain(self.batches)

    def _drain(self, batches: Iterable[Any]) -> float:
        seen = 0
        start = time.perf_counter()
        for _ in batches:
            seen += 1
        elapsed = time.perf_counter() - start
        if seen != self._count:
            raise RuntimeError(f"an epoch of {self._count} batches gave {seen}")
        return elapsed


class EndlessRun(Run):
    """A loader that knows no epochs, and works ahead on the next one while others are timed.

    What it has ready is taken before the clock starts, and it may fill up again before the next one's turn.
    """

    def __init__(self, batches: Iterator[Any], count: int, ahead: int) -> None:
        super().__init__(batches, count)
        self._ahead = ahead
        self.drawn += ahead

    def epoch(self) -> float:
        for _ in islice(self.batches, self._ahead):
            pass
        elapsed = self._drain(islice(self.batches, self._count))
        if self._ahead:
            time.sleep(elapsed)  # more than it needs for the few batches of its buffers
        return elapsed


class Loader(ABC):
    """One library: whether it is there, what it cannot do, and how it is set up for a case.

    Attributes:
        peer: the loader that it is set beside in words: one that gives the same kind of arrays, or that most know.
        warm_up: epochs that are not timed.
    """

    warm_up: ClassVar[int] = 1
    name: ClassVar[str]
    distribution: ClassVar[str]
    module: ClassVar[str]
    peer: ClassVar[str | None] = None

    @property
    def version(self) -> str:
        """As the package's metadata tell it."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    def imported(self) -> Any:
        """The module that is used, typed as anything: no stubs are needed for what may not be installed."""
        return importlib.import_module(self.module)

    def absence(self) -> str | None:
        """Why the library cannot be used here; None where it can."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.imported()
        except ModuleNotFoundError as error:
            return "not installed" if self.module.startswith(error.name or "?") else f"does not import: {error}"
        except Exception as error:  # a shared library that is missing: OSError
            return f"does not import: {error}"
        return None

    def limitation(self, case: Case) -> str | None:
        """Why the library cannot do a case; None where it can."""
        return None

    def workers(self, case: Case, workers: int) -> int:
        """How many it has in this case, where others have `workers`."""
        return 0 if case.in_process else workers

    @abstractmethod
    def open(self, case: Case, dataset: Any, workers: int) -> AbstractContextManager[Run]:
        """Sets it up; at the end of the block its workers are gone."""


class GluonLoader(Loader):
    """NumPy arrays out."""

    name, distribution, module = "gluonloader", "gluonloader", "gluonloader"

    @property
    def version(self) -> str:
        return gluonloader.__version__

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        with self._make(
            gluonloader.ArrayDataset(*dataset.columns) if isinstance(dataset, Columns) else dataset,
            case.batch_size,
            case.shuffled,
            batchify_fn=_pad_in_place if case.padded else None,
            **self._means(workers),
        ) as loader:
            yield Run(loader, case.batches)

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers, "start_method": "fork" if workers else None}

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        return gluonloader.DataLoader(*arguments, **options)


class Tensors(GluonLoader):
    """The same batches as torch tensors."""

    name, module, peer = "tensors out", "torch", "torch"

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        return gluonloader.DataLoader(*arguments, output="torch", **options)


class NDArrays(GluonLoader):
    """The drop-in: NDArrays where MXNet's own loader has them, in `cpu_shared(0)` with workers."""

    name, module, peer = "NDArrays out", "mxnet.gluon.data", "MXNet"

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        if options["batchify_fn"] is not None:  # what a user's function returns would stay as it is
            options["output"] = "mxnet"
        return gluonloader.mxnet.DataLoader(*arguments, **options)


def _pad_in_place(samples: Sequence[Array]) -> Array:
    batch = gluonloader.empty((len(samples), max(map(len, samples))), np.int32)
    batch[:] = 0
    fill_rows(batch, samples)
    return batch


class Torch(Loader):
    name, distribution, module = "torch", "torch", "torch.utils.data"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        loader = self.imported().DataLoader(
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="fork" if workers else None,
            collate_fn=_pad_to_torch if case.padded else None,
            **self._source(case, dataset),
        )
        run = Run(loader, case.batches)
        yield run
        run.batches = ()  # it has no close(): its workers end with the last reference to it

    def _source(self, case: Case, dataset: Any) -> dict[str, Any]:
        return {"dataset": dataset, "batch_size": case.batch_size, "shuffle": case.shuffled}


class OneImport(Torch):
    """gluonloader.torch.DataLoader, which takes torch's place."""

    name, distribution, module, peer = "gluonloader.torch", "gluonloader", "gluonloader.torch", "torch"

    @property
    def version(self) -> str:
        return gluonloader.__version__


def _pad_to_torch(samples: Sequence[Array]) -> Any:
    return importlib.import_module("torch").from_numpy(pad(samples))


class MXNet(Loader):
    name, distribution, module = "MXNet", "mxnet", "mxnet.gluon.data"

    def limitation(self, case: Case) -> str | None:
        return "makes no batches of dict samples" if case.name == "dict32" else None

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        data = self.imported()
        loader = data.DataLoader(
            data.ArrayDataset(*dataset.columns) if isinstance(dataset, Columns) else dataset,
            case.batch_size,
            case.shuffled,
            num_workers=workers,
            batchify_fn=_pad_to_mxnet if case.padded else None,
        )
        run = Run(loader, case.batches)
        yield run
        # It has no close() either, and can hang when it goes with work in flight: every epoch is read to its end.
        run.batches = ()


def _pad_to_mxnet(samples: Sequence[Array]) -> Any:
    mx = importlib.import_module("mxnet")
    return mx.nd.array(pad(samples), dtype=np.int32, ctx=mx.Context("cpu_shared", 0))  # as Gluon's own Pad does


class Grain(Loader):
    """Its workers live as long as an iterator, so the dataset repeats for ever and one iterator serves all epochs.

    No reading threads, which is its own advice for data in memory; as many batches ready as for the others.
    """

    name, distribution, module = "Grain", "grain", "grain"

    def imported(self) -> Any:
        logging.getLogger("absl").setLevel(logging.ERROR)  # it warns that JAX is missing, which it does not need
        return super().imported()

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        grain = self.imported()
        source = grain.MapDataset.source(dataset)
        source = source.shuffle(seed=0) if case.shuffled else source
        batched = source.batch(case.batch_size, batch_fn=pad if case.padded else None)
        iterator = iter(self._read(batched.repeat(), workers))
        try:
            yield EndlessRun(iterator, case.batches, 4 * workers)
        finally:
            iterator.close()

    def _read(self, batches: Any, workers: int) -> Any:
        grain = self.imported()
        endless = batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        if not workers:
            return endless
        return endless.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2))


class SPDL(Loader):
    """Threads that each make a whole batch from an array of indices, then `np.stack`.

    Its `aggregate` stage, given single samples or indices, costs 0.1 ms or more for each of them, 60 ms for a batch
    of 256, so batches of indices are its better side; from arrays it takes them in one go. The pipeline
    is built once and goes through its source for ever.
    """

    name, distribution, module = "SPDL", "spdl", "spdl.pipeline"

    def workers(self, case: Case, workers: int) -> int:
        return workers  # it always has threads

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        collate: Callable[[Sequence[Any]], Any] = pad if case.padded else _stack

        def load(indices: Array) -> Any:
            if isinstance(dataset, Columns):
                return dataset[indices]
            return collate([dataset[index] for index in indices.tolist()])

        with self.pipeline(Chunks(len(dataset), case.batch_size, case.shuffled), load, workers) as pipeline:
            yield EndlessRun(for_ever(pipeline), case.batches, 4 * workers)

    @contextmanager
    def pipeline(self, source: Chunks, load: Callable[[Array], Any], workers: int) -> Iterator[Any]:
        """Threads that call `load` with the indices of each batch."""
        pipeline = (
            importlib.import_module("spdl.pipeline")
            .PipelineBuilder()
            .add_source(source, continuous=True)
            .pipe(load, concurrency=workers, output_order="input")
            .add_sink(2 * workers)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield pipeline


class Chunks:
    """An epoch of arrays of indices."""

    def __init__(self, length: int, size: int, shuffled: bool) -> None:
        self._length, self._size, self._shuffled = length, size, shuffled
        self._rng = np.random.default_rng(0)

    def __iter__(self) -> Iterator[Array]:
        order = np.arange(self._length)
        if self._shuffled:
            self._rng.shuffle(order)
        for start in range(0, self._length, self._size):
            yield order[start : start + self._size]


def _stack(samples: Sequence[Any]) -> Any:
    first = samples[0]
    if isinstance(first, tuple):
        return tuple(np.stack(column) for column in zip(*samples, strict=True))
    if isinstance(first, dict):
        return {key: np.stack([sample[key] for sample in samples]) for key in first}
    return np.stack(samples)


def for_ever(epochs: Iterable[Any]) -> Iterator[Any]:
    """One epoch after another."""
    while True:
        yield from epochs
