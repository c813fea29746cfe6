"""Import of the optional packages that read files and tables."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..errors import MissingExtraError


def import_extra(module: str, extra: str) -> Any:
    """The module, which the extra `extra` of this package installs.

    Raises:
        MissingExtraError: the module is not installed.
    """
    try:
        return sys.modules.get(module) or importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra) from error
