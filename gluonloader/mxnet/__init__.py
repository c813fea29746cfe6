"""Replaces `mxnet.gluon.data`: the same names, arguments and results, but batches are loaded by gluonloader.

    gluonloader.mxnet.install()                       # or: python -m gluonloader.mxnet script.py
    from gluonloader.mxnet import DataLoader          # was: from mxnet.gluon.data import DataLoader

After `install()`, unchanged code that uses `mxnet.gluon.data` loads its batches with gluonloader. MXNet is imported at
the first use of a name in `__all__` other than `patch_numpy`, so `patch_numpy` can be called before the import.
docs/gluon.md lists what differs from Gluon.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .numpy_names import patch_numpy

if TYPE_CHECKING:
    from . import batchify, dataloader, dataset, sampler, vision
    from .dataloader import DataLoader
    from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
    from .installing import install, uninstall
    from .other_loaders import DataLoaderIter, RandomTransformDataLoader, ShardedDataLoader
    from .sampler import BatchSampler, FilterSampler, IntervalSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "DataLoaderIter",
    "Dataset",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "RandomTransformDataLoader",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "ShardedDataLoader",
    "SimpleDataset",
    "batchify",
    "dataloader",
    "dataset",
    "install",
    "patch_numpy",
    "sampler",
    "uninstall",
    "vision",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("batchify", "dataloader", "dataset", "sampler", "vision"):
        return importlib.import_module(f".{name}", __name__)
    for module in ("dataloader", "dataset", "sampler", "installing", "other_loaders") if name in __all__ else ():
        names = vars(importlib.import_module(f".{module}", __name__))
        if name in names:
            return names[name]
    if "mxnet" not in sys.modules:  # pickle asks each module for the names of some objects, which must import nothing
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".gluon", __name__).data, name)
