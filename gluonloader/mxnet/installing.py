"""`install` replaces classes of MXNet by gluonloader's, so that unchanged code uses them; `uninstall` restores them.

MXNet's `Dataset` and `Sampler` are not replaced. The datasets and samplers of both libraries derive from these two
classes, so `isinstance` checks still pass.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

from ..errors import warn
from ..locks import Lock
from . import dataloader, dataset, other_loaders, sampler
from .gluon import data as _gluon
from .gluon import mx

_LOG = logging.getLogger("gluonloader")

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
_MXNETS_LOADER: Final = _gluon.DataLoader
# The replacements for classes of other packages. A key is the module that defines the original class; other modules of
# the package may have imported that class.
_OTHER_LOADERS: Final[dict[str, type]] = {
    "gluoncv.data.dataloader": other_loaders.RandomTransformDataLoader,
    "gluonnlp.data.dataloader": other_loaders.ShardedDataLoader,
}
_PACKAGES: Final = {"mxnet", *(name.partition(".")[0] for name in _OTHER_LOADERS)}


@dataclass(frozen=True, slots=True)
class _Replaced:
    module: ModuleType
    name: str
    original: Any
    replacement: Any


_replaced: list[_Replaced] = []
_lock = Lock()  # while classes are replaced or restored


class Installed:
    """The context manager that `install` returns; it calls `uninstall` at the end of the `with` block."""

    def __init__(self, first: bool) -> None:
        self._first = first

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        if self._first:  # otherwise an earlier call of `install` still has effect
            uninstall()


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
    with _lock:
        return _install()


def _install() -> Installed:
    if _replaced:
        return Installed(first=False)
    if too_early := sorted({*_derived(_MXNETS_LOADER), *_imported_by_name()}):
        warn(
            "MXNet's DataLoader was imported or subclassed before the call of gluonloader.mxnet.install(); these "
            f"names continue to use MXNet's loader: {', '.join(too_early)}; call install() before the other imports"
        )
    for module in (_gluon, _gluon.dataloader, _gluon.dataset, _gluon.sampler):
        _replace(module, {name: new for name, new in _CLASSES.items() if hasattr(module, name)})
    _replace(mx.contrib.io, {"DataLoaderIter": other_loaders.DataLoaderIter})
    for name in _OTHER_LOADERS:
        if name in sys.modules:
            _replace_in_package(sys.modules[name])
    sys.meta_path.insert(0, _FINDER)
    _LOG.info("install: replaced %s", ", ".join(f"{item.module.__name__}.{item.name}" for item in _replaced))
    return Installed(first=True)


def uninstall() -> None:
    """Puts the original classes of MXNet, GluonNLP and GluonCV back; loaders that exist keep working."""
    with _lock:
        _uninstall()


def _uninstall() -> None:
    # Also modules that imported the new classes after `install`.
    changed = [module for module in _modules() if _top(module) in _PACKAGES]
    while _replaced:
        item = _replaced.pop()
        for module in changed:
            if vars(module).get(item.name) is item.replacement:
                setattr(module, item.name, item.original)
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _replace(module: ModuleType, names: dict[str, Any]) -> None:
    for name, new in names.items():
        _replaced.append(_Replaced(module, name, getattr(module, name), new))
        setattr(module, name, new)


def _replace_in_package(module: ModuleType) -> None:
    """Replaces the loader that `module` defines, there and in all modules of its package that have imported it."""
    new = _OTHER_LOADERS[module.__name__]
    original = vars(module).get(new.__name__)
    for found in _modules() if original is not None else ():
        if _top(found) == _top(module) and vars(found).get(new.__name__) is original:
            _replace(found, {new.__name__: new})


class _Finder:
    """Replaces the loaders of GluonNLP and GluonCV as soon as their modules are imported."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _OTHER_LOADERS else None
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            with _lock:
                if _replaced:  # otherwise `uninstall` was called meanwhile
                    _replace_in_package(module)

        loader.exec_module = exec_module
        return spec


_FINDER: Final = _Finder()


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def _top(module: ModuleType) -> str:
    return str(vars(module).get("__name__")).partition(".")[0]


def _derived(base: Any) -> Iterator[str]:
    """Classes of the user that derive from MXNet's loader but not from gluonloader's."""
    for kind in base.__subclasses__():
        if not issubclass(kind, dataloader.DataLoader):
            if kind.__module__.partition(".")[0] not in _PACKAGES:  # `import gluoncv` alone derives some
                yield f"{kind.__module__}.{kind.__qualname__}"
            yield from _derived(kind)


def _imported_by_name() -> Iterator[str]:
    """The names under which modules of the user's program have imported MXNet's `DataLoader`."""
    users = [module for module in _modules() if _top(module) not in (*_PACKAGES, __name__.partition(".")[0])]
    for module in users:
        for name, value in list(vars(module).items()):
            if value is _MXNETS_LOADER:
                yield f"{module.__name__}.{name}"
