"""A loader of torch as a `gluonloader.DataLoader`, for code that measures, checks and tunes loaders."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final

from ..loader import DataLoader as CoreDataLoader
from .core import batch_sampler_of, core_loader
from .dataloader import DataLoader
from .order import chain_of_torch
from .utils_data import data, torch

_COPIED: Final = (  # the other arguments of torch's loader decide the batches
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers", "in_order",
)  # fmt: skip
_CORES: Final = (  # arguments of gluonloader.DataLoader that do not decide the batches
    "executor", "concurrency", "prefetch", "start_method", "memory_limit", "on_error",
)  # fmt: skip
_originals: weakref.WeakKeyDictionary[CoreDataLoader, Any] = weakref.WeakKeyDictionary()


def arguments_of(loader: Any) -> dict[str, Any]:
    """The arguments, other than the dataset, with which a new loader has the batches of this loader of torch."""
    arguments = {name: getattr(loader, name) for name in _COPIED}
    if isinstance(loader.dataset, data.IterableDataset):
        return {**arguments, "batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if loader.batch_sampler is None:
        return {**arguments, "batch_size": None, "sampler": loader.sampler}
    return {**arguments, "batch_sampler": loader.batch_sampler}


def as_core(loader: Any, options: Mapping[str, Any]) -> CoreDataLoader:
    """A `gluonloader.DataLoader` with the batches of a loader of torch or of `gluonloader.torch`.

    Args:
        options: arguments of `gluonloader.DataLoader`, which replace those of the loader. Its other arguments are not
            used here: `loader` was made with them.
    """
    ours = loader if isinstance(loader, DataLoader) else DataLoader(loader.dataset, **arguments_of(loader))
    num_workers = options.get("num_workers", ours.num_workers)
    more = {**ours._gluonloader.more, **{name: options[name] for name in _CORES if name in options}}
    for part in chain_of_torch(ours.sampler if ours.batch_sampler is None else ours.batch_sampler):
        if getattr(part, "generator", part) is None:  # or it draws from torch's generator, as if samples did
            part.generator = torch.Generator().manual_seed(torch.initial_seed())
    core = core_loader(ours, batch_sampler_of(ours), 0, num_workers, more, replicas=max(1, num_workers))
    _originals[core] = loader
    return core


def original_of(core: CoreDataLoader) -> Any:
    """The loader of torch from which `as_core` has made a loader; None for any other loader."""
    return _originals.get(core)


def torch_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `gluonloader.DataLoader` under the names that they have in `gluonloader.torch.DataLoader`.

    >>> torch_arguments({"num_workers": 2, "prefetch": 8, "start_method": "spawn"})
    {'num_workers': 2, 'prefetch_factor': 4, 'multiprocessing_context': 'spawn'}
    """
    named = dict(arguments)
    if "prefetch" in named:
        named["prefetch_factor"] = max(1, named.pop("prefetch") // max(1, named.get("num_workers", 1)))
    if "start_method" in named:
        named["multiprocessing_context"] = named.pop("start_method")
    return named
