"""Makes the `gluonloader.DataLoader` that loads the batches of a `gluonloader.torch.DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..checks import check_int
from ..dataset import base as own
from ..frameworks.torch import sees_device
from ..loader import DataLoader as CoreDataLoader
from ..messages import message
from ..options import Seed
from ..work.task import Task
from .collate import own_collate
from .order import order_of
from .reading import OfFirst, Replicas, StartWorker, Whole, WholeRows, has_rows
from .utils_data import data, pin_memory, torch
from .words import advice_in_torchs_words, use_torchs_words


def is_iterable(loader: Any) -> bool:
    """Whether torch iterates the dataset."""
    return isinstance(loader.dataset, data.IterableDataset)


def batch_sampler_of(loader: Any) -> Any:
    """The batch sampler of the core loader; for an iterable dataset it is not used by the core loader."""
    return order_of(loader, _reads_whole(loader))


def core_loader(
    loader: Any, batch_sampler: Any, seed: int, num_workers: int, more: Mapping[str, Any], replicas: int | None = None
) -> CoreDataLoader:
    """A core loader with the arguments of `loader`, and those that torch does not have. Its workers have started.

    Args:
        replicas: how many workers read an iterable dataset; by default those of `loader`.
    """
    dataset, collate_fn = loader.dataset, own_collate(loader.collate_fn)
    whole = is_iterable(loader) or _reads_whole(loader)
    options: dict[str, Any] = {}
    if is_iterable(loader):
        dataset = Replicas(dataset, loader.batch_size, loader.drop_last, replicas or loader.num_workers)
    else:
        options["batch_sampler"] = batch_sampler
        as_rows = whole and _batches_by_default(loader) and has_rows(dataset)
        if as_rows or _reads_tensors(loader):
            dataset = WholeRows(dataset, as_rows)
        elif whole:
            dataset = Whole(dataset, _reads_in_bulk(loader))
    if num_workers:
        context = loader.multiprocessing_context
        options["start_method"] = None if context is None else context.get_start_method()
        factor = 2 if loader.prefetch_factor is None else check_int("prefetch_factor", loader.prefetch_factor, 1)
        options["prefetch"] = factor * num_workers
        options["worker_init_fn"] = StartWorker(seed, loader.worker_init_fn)
    options.update(more)
    pins = loader.pin_memory and sees_device(torch)
    if not num_workers:  # to check a state, or to make a batch again: it needs no executor
        options["executor"] = None
    try:
        core: CoreDataLoader = CoreDataLoader(
            dataset,
            batchify_fn=OfFirst(collate_fn) if whole else collate_fn,
            num_workers=+num_workers,  # True counts as 1, as in torch
            pin_memory=loader.pin_memory and not pins,  # without a device it warns once
            timeout=loader.timeout or None,
            output="torch" if num_workers and collate_fn is not loader.collate_fn else None,
            seed=Seed(seed, reseed_generators=False),  # as torch
            in_order=loader.in_order,
            **options,
        )
    except Exception as error:
        use_torchs_words(error)
        raise
    if pins:
        core.epochs.delivery = replace(core.epochs.delivery, convert=Pinned(core.epochs.delivery.convert))
    if whole and not is_iterable(loader):
        core.epochs.delivery = replace(core.epochs.delivery, samples_in=_samples_of_key)
    core.epochs.workers.words = partial(advice_in_torchs_words, persistent_workers=loader.persistent_workers)
    core.epochs.source.leave_epochs()
    if not num_workers:  # as torch: so a sampler with a checkpoint of its own stands after the batch that was delivered
        core.epochs.delivery = replace(core.epochs.delivery, draws_ahead=False)
    return core


@message(frozen=True, slots=True)
class Pinned:
    """Converts a batch, and pins it as torch's loader does, also by the method `pin_memory` of objects in the batch."""

    convert: Callable[[Any], Any] | None

    def __call__(self, batch: Any) -> Any:
        return pin_memory(batch if self.convert is None else self.convert(batch))


def _samples_of_key(task: Task, batch: Any) -> int:
    """The number of samples that the only key of a task stands for."""
    key = task.indices[0] if task.indices else ()
    return len(key) if isinstance(key, (list, tuple)) else 1


def _reads_whole(loader: Any) -> bool:
    """Whether one read of the dataset returns all that makes a batch; see `Whole`."""
    return loader.batch_sampler is None or _reads_in_bulk(loader) or _reads_tensors(loader)


def _batches_by_default(loader: Any) -> bool:
    return loader.batch_sampler is not None and own_collate(loader.collate_fn) is not loader.collate_fn


def _reads_tensors(loader: Any) -> bool:
    return type(loader.dataset) is data.TensorDataset and _batches_by_default(loader) and not _reads_samples(loader)


def _reads_in_bulk(loader: Any) -> bool:
    """Whether torch calls the dataset's `__getitems__`; gluonloader reads its own datasets in bulk in any case."""
    by_torch = loader.batch_sampler is not None and bool(getattr(loader.dataset, "__getitems__", None))
    return by_torch and not isinstance(loader.dataset, own.Dataset) and not _reads_samples(loader)


def _reads_samples(loader: Any) -> bool:
    """Whether an option of gluonloader is about single samples; then it reads them itself, if need be in bulk."""
    more = loader._gluonloader.more
    return bool(more["on_error"] != "raise" or more["concurrency"] > 1)
