"""Lets a factory return a loader of torch: `tune` and the commands read its batches with gluonloader.

    factory(num_workers=2) --TypeError--> factory() --loader of torch--> gluonloader.DataLoader(..., num_workers=2)

A factory of torch's loaders need not accept the arguments that are varied, most of which torch does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ...loader import DataLoader


def is_torchs(loader: Any) -> bool:
    """Whether a loader is torch's, or of a class that derives from it, such as `gluonloader.torch.DataLoader`."""
    # By name, since `gluonloader.torch.install` may have replaced the class; and torch need not be imported.
    names = [(kind.__module__, kind.__name__) for kind in type(loader).__mro__]
    return ("torch.utils.data.dataloader", "DataLoader") in names


def torchs_of(factory: Callable[..., Any]) -> Any:
    """The loader of torch that a factory returns without arguments; None if it returns no such loader."""
    try:
        loader = factory()
    except Exception:  # the error of the call with arguments is the one to show
        return None
    return loader if is_torchs(loader) else None


def as_core(loader: Any, options: Mapping[str, Any]) -> DataLoader[Any]:
    """A loader of gluonloader with the batches of a loader of torch, and with these arguments."""
    from ...torch.converting import as_core as convert  # not at the top, since it imports torch

    return convert(loader, options)


def adapted(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory that returns a `gluonloader.DataLoader` also where `factory` returns a loader of torch."""

    def make(**options: Any) -> Any:
        try:
            loader = factory(**options)
        except TypeError:
            loader = torchs_of(factory)
            if loader is None:
                raise
        return as_core(loader, options) if is_torchs(loader) else loader

    return make


def torchs_arguments(loader: DataLoader[Any]) -> dict[str, Any] | None:
    """The arguments of the loader of torch from which a loader was made; None if it was not made from one."""
    converting = sys.modules.get("gluonloader.torch.converting")
    original = None if converting is None else converting.original_of(loader)
    if converting is None or original is None:
        return None
    return {"dataset": original.dataset, **converting.arguments_of(original)}


def named_for(loader: DataLoader[Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of a loader under the names that they have where the user's factory makes it."""
    if torchs_arguments(loader) is None:
        return arguments
    from ...torch.converting import torch_arguments

    return torch_arguments(arguments)
