"""Replaces `torch.utils.data.DataLoader`: the same arguments, attributes and batches, but loaded by gluonloader.

    gluonloader.torch.install()                       # or: python -m gluonloader.torch script.py
    from gluonloader.torch import DataLoader          # was: from torch.utils.data import DataLoader

After `install()`, unchanged code that uses `torch.utils.data` loads its batches with gluonloader. All other
names of `torch.utils.data` can be imported from here, too, and are torch's. docs/torch.md lists what
differs from torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataloader import DataLoader
    from .installing import install, uninstall

__all__ = ["DataLoader", "install", "uninstall"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "DataLoader":
        return importlib.import_module(".dataloader", __name__).DataLoader
    if name in __all__:
        return getattr(importlib.import_module(".installing", __name__), name)
    try:
        data = importlib.import_module(".utils_data", __name__).data
    except ImportError as error:  # e.g. pickle asks each module for the name of an object, and expects this error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {error}") from error
    return getattr(data, name)
