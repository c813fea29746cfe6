"""Replaces `mxnet.gluon.data`: the same names, arguments and results, but gluonloader's workers load the batches.

    from gluonloader.mxnet import DataLoader          # was: from mxnet.gluon.data import DataLoader

All other names are Gluon's. The first use of a name imports MXNet, so that `patch_numpy` can run before.
docs/migrating-from-gluon.md lists what differs from Gluon, and why.

    dataloader   DataLoader
    batchify     Gluon 2.0's batchify functions
    dataset      datasets
    sampler      samplers
    vision       Gluon's vision datasets and transforms, unchanged
    structure    the default batchify, in NumPy
    ndarrays     conversion of batches to NDArrays
    gluon        the import of Gluon
    numpy_names  patch_numpy
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .numpy_names import patch_numpy as patch_numpy

if TYPE_CHECKING:
    from . import batchify as batchify
    from . import dataloader as dataloader
    from . import dataset as dataset
    from . import sampler as sampler
    from . import vision as vision
    from .dataloader import DataLoader as DataLoader
    from .dataset import ArrayDataset as ArrayDataset
    from .dataset import Dataset as Dataset
    from .dataset import RecordFileDataset as RecordFileDataset
    from .dataset import SimpleDataset as SimpleDataset
    from .sampler import BatchSampler as BatchSampler
    from .sampler import FilterSampler as FilterSampler
    from .sampler import IntervalSampler as IntervalSampler
    from .sampler import RandomSampler as RandomSampler
    from .sampler import Sampler as Sampler
    from .sampler import SequentialSampler as SequentialSampler

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

_MODULES = ("batchify", "dataloader", "dataset", "sampler", "vision")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    ours = ("dataloader", "dataset", "sampler") if name in __all__ else ()
    for module in ours:
        found = vars(importlib.import_module(f".{module}", __name__)).get(name)
        if found is not None:
            return found
    return getattr(importlib.import_module(".gluon", __name__).data, name)
