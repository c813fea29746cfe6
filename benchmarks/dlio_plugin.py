"""gluonloader as a data loader of DLIO: `reader.data_loader_classname: benchmarks.dlio_plugin.GluonLoader`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from dlio_benchmark.common.enumerations import DataLoaderType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.reader.reader_factory import ReaderFactory
from dlio_benchmark.utils.config import ConfigArguments

from gluonloader import DataLoader


class _Samples:
    """The samples of DLIO's reader, which each process opens for itself."""

    def __init__(self, loader: GluonLoader) -> None:
        self._reader_arguments = {"type": loader.format_type, "dataset_type": loader.dataset_type}
        self._length, self._epoch = int(loader.num_samples), loader.epoch_number
        self._settings = pickle.dumps(ConfigArguments.get_instance())
        self._reader: Any = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._reader.read_index(index, 0)

    def open(self, worker: int) -> None:
        """Opens the reader in a worker."""
        pickle.loads(self._settings)  # DLIO's settings are a single object in each process, and this restores it
        self._reader = ReaderFactory.get_reader(thread_index=worker, epoch_number=self._epoch, **self._reader_arguments)


class GluonLoader(BaseDataLoader):  # type: ignore[misc]
    """Reads samples with as many worker processes as DLIO's own loader for torch has."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.PYTORCH)
        self._loader: DataLoader[Any] | None = None

    def read(self) -> None:
        """Makes the loader; DLIO calls this once, before the first epoch."""
        settings, samples = self._args, _Samples(self)
        self._loader = DataLoader(
            samples,
            self.batch_size,
            shuffle=settings.sample_shuffle is not Shuffle.OFF,
            seed=settings.seed,
            ranks=(settings.my_rank, settings.comm_size),
            last_batch="discard",
            num_workers=settings.read_threads,
            start_method=settings.multiprocessing_context if settings.read_threads else None,
            prefetch=settings.prefetch_size or None,
            worker_init_fn=samples.open,
            output="torch",
        )

    def next(self) -> Iterator[Any]:
        """Yields the batches of an epoch."""
        assert self._loader is not None
        yield from self._loader

    def finalize(self) -> None:
        """Called after each epoch; the workers stay."""
