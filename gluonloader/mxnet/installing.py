"""`install` replaces classes of MXNet by gluonloader's, so that unchanged code uses them; `uninstall` restores them.

MXNet's `Dataset` and `Sampler` are not replaced. The datasets and samplers of both libraries derive from these two
classes, so `isinstance` checks still pass.
"""

from __future__ import annotations

from typing import Any, Final

from ..dropin.replacing import Installed, Replacements
from . import dataloader, dataset, other_loaders, sampler
from .gluon import data as _gluon
from .gluon import mx

# The batchify functions are not replaced: loaders of MXNet that were made before `install` still send them to their
# workers, and pickle finds a function by its name.
_CLASSES: Final[dict[str, Any]] = {
    "ArrayDataset": dataset.ArrayDataset,
    "BatchSampler": sampler.BatchSampler,
    "DataLoader": dataloader.DataLoader,
    "FilterSampler": sampler.FilterSampler,
    "RandomSampler": sampler.RandomSampler,
    "RecordFileDataset": dataset.RecordFileDataset,
    "SequentialSampler": sampler.SequentialSampler,
    "SimpleDataset": dataset.SimpleDataset,
}
_MODULES: Final = (_gluon, _gluon.dataloader, _gluon.dataset, _gluon.sampler)
_REPLACEMENTS: Final = Replacements(
    "gluonloader.mxnet.install()",
    "MXNet",
    _gluon.DataLoader,
    dataloader.DataLoader,
    [
        *((module, {name: new for name, new in _CLASSES.items() if hasattr(module, name)}) for module in _MODULES),
        (mx.contrib.io, {"DataLoaderIter": other_loaders.DataLoaderIter}),
    ],
    later={
        "gluoncv.data.dataloader": other_loaders.RandomTransformDataLoader,
        "gluonnlp.data.dataloader": other_loaders.ShardedDataLoader,
    },
)


def install() -> Installed:
    """Puts gluonloader's classes into `mxnet.gluon.data`, so that unchanged code loads its batches with gluonloader.

    `install` replaces the loader, the datasets and the samplers in `mxnet.gluon.data` and its modules, and
    `DataLoaderIter` in `mxnet.contrib.io`. It also replaces GluonNLP's `ShardedDataLoader` and GluonCV's
    `RandomTransformDataLoader`, even if these packages are imported later. The names of the replaced classes are logged
    at level INFO on the logger "gluonloader". A second call does nothing.

    Call `install` before other imports. If another module has already imported MXNet's `DataLoader` by name, or has
    derived a class from it, `install` warns, because that module continues to use MXNet's loader.

    Returns:
        A context manager: `with install():` calls `uninstall` at the end of the block.
    """
    return _REPLACEMENTS.install()


def uninstall() -> None:
    """Puts the original classes of MXNet, GluonNLP and GluonCV back; loaders that exist keep working."""
    _REPLACEMENTS.uninstall()
