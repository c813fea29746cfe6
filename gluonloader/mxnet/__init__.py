"""Replaces `mxnet.gluon.data`: the same names, arguments and results, but batches are loaded by gluonloader.

    from gluonloader.mxnet import DataLoader          # was: from mxnet.gluon.data import DataLoader

The other names are also those of Gluon. MXNet is imported at the first use of a name, so `patch_numpy` can run before.
docs/migrating-from-gluon.md lists what differs from Gluon, and why.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .numpy_names import patch_numpy

if TYPE_CHECKING:
    from . import batchify, dataloader, dataset, sampler, vision
    from .dataloader import DataLoader
    from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
    from .sampler import BatchSampler, FilterSampler, IntervalSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "batchify",
    "dataloader",
    "dataset",
    "patch_numpy",
    "sampler",
    "vision",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("batchify", "dataloader", "dataset", "sampler", "vision"):
        return importlib.import_module(f".{name}", __name__)
    for module in ("dataloader", "dataset", "sampler") if name in __all__ else ():
        names = vars(importlib.import_module(f".{module}", __name__))
        if name in names:
            return names[name]
    return getattr(importlib.import_module(".gluon", __name__).data, name)
