"""Finds a framework by its name, or by the type of one of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from ..errors import import_extra
from .base import Framework
from .jax import Jax
from .mxnet import MXNet
from .numpy import NumPy
from .torch import Torch

_MAKERS: Final[dict[str, Callable[[], Framework]]] = {
    "numpy": NumPy,
    "torch": Torch,
    "jax": Jax,
    "mxnet": lambda: MXNet(numpy_like=None),
    "mxnet.nd": lambda: MXNet(numpy_like=False),
    "mxnet.np": lambda: MXNet(numpy_like=True),
    "mxnet.nd.shared": lambda: MXNet(numpy_like=False, shared=True),
    "mxnet.np.shared": lambda: MXNet(numpy_like=True, shared=True),
    "mxnet.shared": lambda: MXNet(numpy_like=None, shared=True),
}
# The keys are the packages that define array types. If such a type exists, its package is loaded.
_NAMES: Final = {"torch": ("torch",), "jax": ("jax",), "jaxlib": ("jax",), "mxnet": ("mxnet.nd", "mxnet.np")}

_owners: dict[type, Framework | None] = {}


@cache
def named(name: str) -> Framework:
    """Imports and returns the framework of this name; raises an ImportError that says what to do if that fails."""
    package = name.partition(".")[0]
    try:
        import_extra(package, package)
    except ModuleNotFoundError as error:
        if package == "mxnet" and error.name == "distutils":
            raise ImportError("MXNet needs distutils, which Python 3.12 removed; run pip install setuptools") from error
        raise
    except AttributeError as error:
        if package != "mxnet" or "numpy" not in str(error).lower():
            raise
        raise ImportError(
            f"MXNet does not work with NumPy {np.__version__} ({error}); call gluonloader.mxnet.patch_numpy() before "
            "anything imports mxnet"
        ) from error
    return _MAKERS[name]()


@cache
def arriving(name: str) -> Framework:
    """Returns the framework of this name for arrays that come from a worker: as in Gluon, in `cpu_shared(0)`."""
    return named(f"{name}.shared" if name in _NAMES["mxnet"] else name)


def owner(kind: type) -> Framework | None:
    """Returns the framework whose arrays have exactly this type; None for NumPy arrays and all other types."""
    if kind in _owners:
        return _owners[kind]
    module = str(kind.__module__)
    names = ("jax",) if module.startswith(__package__) else _NAMES.get(module.partition(".")[0], ())
    _owners[kind] = next((framework for name in names if (framework := named(name)).owns(kind)), None)
    return _owners[kind]


def owner_by_base(kind: type) -> Framework | None:
    """Returns the framework of this type, or of its nearest base class that belongs to a framework."""
    return next((framework for base in kind.__mro__ if (framework := owner(base)) is not None), None)
