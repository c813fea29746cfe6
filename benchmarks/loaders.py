"""Sets up the loaders: a class for each library, as the library's documentation recommends for data in memory.

A library is imported only when it is used, so libraries may be missing. The batches of a loader stay arrays of its
library, and the benchmarks do not read their values. gluonloader takes part four times: with NumPy arrays, with torch
tensors, as the replacement of MXNet's loader with NDArrays, and as the replacement of torch's loader.
"""

from __future__ import annotations

import importlib
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

from .cases import Array, Case, Pad, fill_rows, pad
from .datasets import Columns


class Run:
    """A loader that is set up; each iteration over `batches` is an epoch."""

    def __init__(self, batches: Iterable[Any], count: int) -> None:
        self.batches = batches
        self.drawn = count  # number of batches that a call of `epoch` reads
        self._count = count

    def epoch(self) -> float:
        """Returns the seconds of an epoch."""
        return self._drain(self.batches)

    def _drain(self, batches: Iterable[Any]) -> float:
        seen = 0
        start = time.perf_counter()
        for _ in batches:
            seen += 1
        elapsed = time.perf_counter() - start
        if seen != self._count:
            raise RuntimeError(f"an epoch should have {self._count} batches, but it had {seen}")
        return elapsed


class EndlessRun(Run):
    """A loader without epochs, which prefetches batches of the next epoch before this epoch is timed.

    The prefetched batches are read before the clock starts. After the epoch, the loader has time to prefetch again.
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
            time.sleep(elapsed)  # longer than the loader needs to prefetch batches again
        return elapsed


class Loader(ABC):
    """A loader of a library: whether the library is installed, which cases it cannot do, and how it is set up.

    Attributes:
        name: name of the loader in the results.
        module: name of the module that is imported.
        peer: name of the loader that the notes in the results compare it with, which usually yields the same kind of
            arrays.
        warm_up: number of epochs that are not timed.
        always_works: whether it has workers also in cases in which the loaders have none.
    """

    warm_up: ClassVar[int] = 1
    always_works: ClassVar[bool] = False
    name: ClassVar[str]
    module: ClassVar[str]
    peer: ClassVar[str | None] = None

    def imported(self) -> Any:
        """Imports the module. Its type is Any, because mypy cannot read the types of a module that is not installed."""
        return importlib.import_module(self.module)

    def absence(self) -> str | None:
        """Returns why the library cannot be used on this machine; None if it can be used."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.imported()
        except ModuleNotFoundError as error:
            return "not installed" if self.module.startswith(error.name or "?") else f"cannot be imported: {error}"
        except Exception as error:  # for example an OSError, because a shared library is missing
            return f"cannot be imported: {error}"
        return None

    def limitation(self, case: Case) -> str | None:
        """Returns why the library cannot do a case; None if it can."""
        return None

    def workers(self, case: Case, workers: int) -> int:
        """Returns the number of workers of this loader in this case, if `workers` were asked for."""
        return 0 if case.in_process and not self.always_works else workers

    @abstractmethod
    def open(self, case: Case, dataset: Any, workers: int) -> AbstractContextManager[Run]:
        """Sets up the loader; the workers of the loader end at the end of the block."""


class GluonLoader(Loader):
    """gluonloader with NumPy arrays."""

    name, module = "gluonloader", "gluonloader"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        with self._make(
            gluonloader.ArrayDataset(*dataset.columns) if isinstance(dataset, Columns) else dataset,
            case.batch_size,
            case.shuffled,
            batchify_fn=case.padding(pad_in_place),
            **self._means(workers),
        ) as loader:
            yield Run(loader, case.batches)

    def _means(self, workers: int) -> dict[str, Any]:
        return {"num_workers": workers, "start_method": "fork" if workers else None}

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        return gluonloader.DataLoader(*arguments, **options)


class Tensors(GluonLoader):
    """gluonloader with torch tensors."""

    name, module, peer = "tensors out", "torch", "torch"

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        return gluonloader.DataLoader(*arguments, output="torch", **options)


class NDArrays(GluonLoader):
    """gluonloader.mxnet.DataLoader, the replacement of MXNet's loader, which yields NDArrays as MXNet does."""

    name, module, peer = "NDArrays out", "mxnet.gluon.data", "MXNet"

    def _make(self, *arguments: Any, **options: Any) -> gluonloader.DataLoader:
        if options["batchify_fn"] is not None:  # otherwise the batches that a user's function returns are not converted
            options["output"] = "mxnet"
        return gluonloader.mxnet.DataLoader(*arguments, **options)


def pad_in_place(samples: Sequence[Array]) -> Array:
    """Pads as `pad`, into memory that gluonloader allocates."""
    batch = gluonloader.empty((len(samples), max(map(len, samples))), np.int32)
    batch[:] = 0
    fill_rows(batch, samples)
    return batch


class Torch(Loader):
    name, module = "torch", "torch.utils.data"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        loader = self.imported().DataLoader(
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="fork" if workers else None,
            collate_fn=case.padding(_pad_to_torch),
            **self._source(case, dataset),
        )
        run = Run(loader, case.batches)
        yield run
        run.batches = ()  # torch's loader has no close(): its workers end with the last reference to the loader

    def _source(self, case: Case, dataset: Any) -> dict[str, Any]:
        return {"dataset": dataset, "batch_size": case.batch_size, "shuffle": case.shuffled}


class OneImport(Torch):
    """gluonloader.torch.DataLoader, the replacement of torch's loader."""

    name, module, peer = "gluonloader.torch", "gluonloader.torch", "torch"


def _pad_to_torch(samples: Sequence[Array]) -> Any:
    return importlib.import_module("torch").from_numpy(pad(samples))


class MXNet(Loader):
    name, module = "MXNet", "mxnet.gluon.data"

    def limitation(self, case: Case) -> str | None:
        return "cannot make batches of dicts" if case.name == "dict32" else None

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        data = self.imported()
        loader = data.DataLoader(
            data.ArrayDataset(*dataset.columns) if isinstance(dataset, Columns) else dataset,
            case.batch_size,
            case.shuffled,
            num_workers=workers,
            batchify_fn=case.padding(_pad_to_mxnet),
        )
        run = Run(loader, case.batches)
        yield run
        # MXNet's loader has no close() either. It can hang if it is deleted while batches are in flight, so each epoch
        # is read to its end.
        run.batches = ()


def _pad_to_mxnet(samples: Sequence[Array]) -> Any:
    mx = importlib.import_module("mxnet")
    return mx.nd.array(pad(samples), dtype=np.int32, ctx=mx.Context("cpu_shared", 0))  # as in Gluon's Pad


def _collate(case: Case) -> Pad | None:
    """The function that users of a loader without tensors need for this case; None if the loader stacks arrays."""
    if case.tensors and not case.padded:
        return importlib.import_module("torch.utils.data").default_collate  # type: ignore[no-any-return]
    return case.padding(pad)


class Grain(Loader):
    """Grain with worker processes. Its workers end with the iterator, so a single endless iterator reads all epochs.

    It has no reading threads, as its documentation recommends for data in memory. It prefetches as many batches as the
    other loaders.
    """

    name, module = "Grain", "grain"

    def imported(self) -> Any:
        logging.getLogger("absl").setLevel(logging.ERROR)  # Grain warns that JAX is missing, but does not need it
        grain = super().imported()
        importlib.import_module("absl.flags").FLAGS.mark_as_parsed()  # its workers read the flags of a program of absl
        return grain

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        grain = self.imported()
        source = grain.MapDataset.source(dataset)
        source = source.shuffle(seed=0) if case.shuffled else source
        batched = source.batch(case.batch_size, batch_fn=_collate(case))
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
    """SPDL with threads. Each thread makes a whole batch from an array of indices, and stacks the samples.

    The threads do not read single samples, because SPDL's stage `aggregate` takes at least 0.1 ms for each sample, or
    60 ms for a batch of 256. If the dataset is `Columns`, a thread reads the whole batch with the array of indices. The
    pipeline is built once, and repeats its source endlessly.
    """

    name, module, always_works = "SPDL", "spdl.pipeline", True

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        collate = _collate(case) or _stack

        def load(indices: Array) -> Any:
            if isinstance(dataset, Columns):
                return dataset[indices]
            return collate([dataset[index] for index in indices.tolist()])

        with self.pipeline(Chunks(len(dataset), case.batch_size, case.shuffled), load, workers) as pipeline:
            yield EndlessRun(for_ever(pipeline), case.batches, 4 * workers)

    @contextmanager
    def pipeline(self, source: Chunks, load: Callable[[Array], Any], workers: int) -> Iterator[Any]:
        """Builds a pipeline whose threads call `load` with the indices of each batch."""
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
    """Yields an array of indices for each batch of an epoch."""

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
    """Yields the batches of one epoch after another, endlessly."""
    while True:
        yield from epochs
