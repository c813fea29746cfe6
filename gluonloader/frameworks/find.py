"""Finds a framework by its name, or by the type of one of its arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

import numpy as np

from ..errors import MissingExtraError
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
}
# By the package that defines a type. The package is loaded, since its type exists.
_NAMES: Final = {"torch": ("torch",), "jax": ("jax",), "jaxlib": ("jax",), "mxnet": ("mxnet.nd", "mxnet.np")}

_frameworks: dict[str, Framework] = {}
_owners: dict[type, Framework | None] = {}


def named(name: str) -> Framework:
    """Returns the framework of this name and imports it if necessary.

    Raises:
        MissingExtraError: it is not installed.
        ImportError: it does not work with this Python or NumPy; the text says what to do.
    """
    framework = _frameworks.get(name)
    if framework is None:
        _import(name.partition(".")[0])
        framework = _frameworks[name] = _MAKERS[name]()
    return framework


def _import(package: str) -> None:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise MissingExtraError(package) from error
        if package == "mxnet" and error.name == "distutils":
            raise ImportError("MXNet needs distutils, which Python 3.12 removed: pip install setuptools") from error
        raise
    except AttributeError as error:
        if package != "mxnet" or "numpy" not in str(error).lower():
            raise
        raise ImportError(
            f"MXNet does not import with NumPy {np.__version__} ({error}); call gluonloader.mxnet.patch_numpy() before "
            "anything imports mxnet"
        ) from error


def mxnet_arrays(shared: bool) -> Framework:
    """Returns MXNet; with `shared` its arrays always lie in `cpu_shared(0)`, even if they do not lie in a slab."""
    named("mxnet")
    return MXNet(numpy_like=None, shared=shared)


def owner(kind: type) -> Framework | None:
    """Returns the framework whose arrays have exactly this type; None for NumPy arrays and all other types."""
    try:
        return _owners[kind]
    except KeyError:
        pass
    module = str(kind.__module__)
    names = ("jax",) if module.startswith(__package__) else _NAMES.get(module.partition(".")[0], ())
    found = next((framework for name in names if (framework := named(name)).owns(kind)), None)
    _owners[kind] = found
    return found


def owner_by_base(kind: type) -> Framework | None:
    """Returns the framework of this type or of its nearest base class that has one."""
    return next((framework for base in kind.__mro__ if (framework := owner(base)) is not None), None)
