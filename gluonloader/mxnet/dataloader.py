"""`DataLoader` with Gluon's arguments and results, and Gluon's two default batchify functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ..checks import LastBatch
from ..frameworks import map_arrays
from ..loader import DataLoader as CoreDataLoader
from ..loading.index_source import IndexSource
from ..tree import Batch
from .gluon import dataloader as _gluon
from .gluon import mx, to_ndarray
from .sampler import with_gluons_names
from .structure import gluon_batchify

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


def __getattr__(name: str) -> Any:
    return getattr(_gluon, name)


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Makes a batch of NDArrays in `cpu(0)`: a list with one batch per field for tuples, otherwise a stack."""
    return map_arrays(to_ndarray(shared=False), gluon_batchify(data))


def default_mp_batchify_fn(data: Sequence[Any]) -> Any:
    """Makes the batch of `default_batchify_fn` in `cpu_shared(0)`."""
    return map_arrays(to_ndarray(shared=True), gluon_batchify(data))


class _Replaceable:
    """A property that an attribute of the object replaces."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __get__(self, loader: Any, kind: type) -> Any:
        return self if loader is None else self._read(loader)


class DataLoader(CoreDataLoader[Batch], _gluon.DataLoader):
    """A `mxnet.gluon.data.DataLoader` whose batches are loaded by gluonloader.

    The attributes that code for Gluon reads, such as `_dataset` and `_num_workers`, contain the arguments. Changing
    these attributes has no effect, except that a new `_batch_sampler` decides the batches from the next epoch on.
    `_worker_pool` is None, since the loader has no `multiprocessing.Pool` that takes tasks.

    The arguments are those of Gluon, in the same order. If no `batchify_fn` is passed, batches are NDArrays (in
    `cpu_shared(0)` with workers, otherwise in `cpu(0)`), and samples that are tuples become a list of NDArrays. Batches
    of a `batchify_fn` are not converted.

    Args:
        try_nopython: accepted for compatibility, and ignored.
        options: keyword arguments that only `gluonloader.DataLoader` has: `seed`, `start_method`, `memory_limit` ...

    Raises:
        ValueError: an argument is wrong; the text names the argument, its value and what to pass instead.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool | None = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[Any], Batch] | None = None,
        num_workers: int | Literal["auto"] = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float | None = 120,
        auto_reload: bool = False,
        try_nopython: bool | None = None,
        **options: Any,
    ) -> None:
        if isinstance(num_workers, int):
            num_workers = max(0, num_workers)
        workers = num_workers != 0 or options.get("executor") == "auto"
        self._dataset, self._thread_pool, self._timeout = dataset, thread_pool, timeout
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._batchify_fn = batchify_fn or (default_mp_batchify_fn if workers else default_batchify_fn)
        self._worker_pool = None
        if batchify_fn is None:
            batchify_fn = gluon_batchify
            options.setdefault("output", to_ndarray(shared=workers))
        if workers and (mx.util.is_np_array() or mx.util.is_np_shape()):
            mode = {"shape": mx.util.is_np_shape(), "array": mx.util.is_np_array()}
            options["worker_init_fn"] = partial(_start_worker, mode, options.get("worker_init_fn"))
        super().__init__(
            dataset,
            batch_size,
            False if shuffle is None else shuffle,
            sampler,
            last_batch,
            batch_sampler,
            batchify_fn,
            num_workers,
            pin_memory,
            pin_device_id,
            max(0, prefetch) if isinstance(prefetch, int) else prefetch,
            thread_pool,
            timeout,
            auto_reload,
            **options,
        )
        self.epochs.source.leave_epochs()
        self._num_workers = self.epochs.workers.options.num_workers
        self._prefetch = 2 * self._num_workers if prefetch is None else max(0, prefetch)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # Gluon's class accepts any attribute

    def __del__(self) -> None:
        pass  # Gluon's method terminates a pool that this loader does not have

    @property
    def _batch_sampler(self) -> Any:
        return with_gluons_names(self.epochs.source.sampler) if hasattr(self, "epochs") else self._own_batch_sampler

    @_batch_sampler.setter
    def _batch_sampler(self, batch_sampler: Any) -> None:
        if hasattr(self, "epochs"):
            self.epochs.drop_ahead()
            source = self.epochs.source
            self.epochs.source = IndexSource(batch_sampler, getattr(source, "history", None))
            self.epochs.source.leave_epochs()
        else:  # a subclass that does not call our constructor, and makes its own batches
            self._own_batch_sampler = batch_sampler

    @property
    def dataset(self) -> Any:
        """The dataset."""
        return self._dataset

    @property
    def batch_sampler(self) -> Any:
        """What yields the indices of each batch."""
        return self._batch_sampler

    @property
    def batchify_fn(self) -> Callable[[Any], Any]:
        """The function that makes a batch from its samples."""
        return self._batchify_fn

    def __len__(self) -> int:
        """Number of batches of the next epoch."""
        return super().__len__() if hasattr(self, "epochs") else len(self._batch_sampler)

    @property
    def auto_reload(self) -> bool:
        """Whether the next epoch starts as soon as the last batch of an epoch was delivered."""
        return self.epochs.auto_reload

    @auto_reload.setter
    def auto_reload(self, value: bool) -> None:
        self.epochs.auto_reload = bool(value)

    def clean(self) -> None:
        """Drops the next epoch if `auto_reload` has started it."""
        self.epochs.drop_ahead()

    def refresh(self) -> None:
        """Starts the next epoch now, instead of the one that `auto_reload` may have started."""
        self.epochs.start_now()


# Gluon's class does not have these properties, so its subclasses may use their names for attributes.
for _name, _member in {**vars(CoreDataLoader), **vars(DataLoader)}.items():
    if isinstance(_member, property) and _member.fset is None and _member.fget is not None:
        setattr(DataLoader, _name, _Replaceable(_member.fget))


def _start_worker(mode: dict[str, bool], then: Callable[[int], object] | None, worker: int) -> None:
    """Sets the same NumPy mode of MXNet as in the constructor of the loader, then calls the user's `worker_init_fn`."""
    mx.util.set_np(**mode)
    if then is not None:
        then(worker)
