"""`install` replaces torch's `DataLoader` by gluonloader's, so that unchanged code uses it; `uninstall` restores it."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Final

from ..dropin.replacing import Installed, Replacements
from .dataloader import DataLoader
from .utils_data import TorchDataLoader, data, torchs

_NAMES: Final[list[tuple[Any, dict[str, Any]]]] = [(module, {"DataLoader": DataLoader}) for module in (data, torchs)]
# Imported now, and not only replaced when a program imports it: a StatefulDataLoader that is defined after `install`
# derives from our class, also when `uninstall` has put it back.
with contextlib.suppress(ImportError):  # an extra
    for _name in ("torchdata.stateful_dataloader", "torchdata.stateful_dataloader.stateful_dataloader"):
        _NAMES.append((importlib.import_module(_name), {"StatefulDataLoader": DataLoader}))
_REPLACEMENTS: Final = Replacements("gluonloader.torch.install()", "torch", TorchDataLoader, DataLoader, _NAMES)


def install() -> Installed:
    """Puts gluonloader's `DataLoader` into `torch.utils.data`, so that unchanged code loads its batches with it.

    `install` replaces `DataLoader` in `torch.utils.data` and `torch.utils.data.dataloader`, and, if torchdata is
    installed, `StatefulDataLoader` in `torchdata.stateful_dataloader`. Libraries that are imported afterwards, and
    derive a class from one of these, derive it from gluonloader's. The replaced names are logged at level INFO on the
    logger "gluonloader". A second call does nothing.

    Call `install` before other imports. If another module has already imported torch's `DataLoader` by name, or has
    derived a class from it, `install` warns, because that module continues to use torch's loader.

    Returns:
        A context manager: `with install():` calls `uninstall` at the end of the block.
    """
    return _REPLACEMENTS.install()


def uninstall() -> None:
    """Puts the original classes of torch and torchdata back; loaders that exist keep working."""
    _REPLACEMENTS.uninstall()
