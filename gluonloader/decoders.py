"""Imports the libraries that decode and resize images, each of them only when it is first needed."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from .errors import import_extra

_found: Final[dict[str, Any]] = {}
# Searching again for a module that is not installed takes as long as decoding a small image.
_absent: Final[set[str]] = set()


def installed(module: str) -> Any:
    """Returns the module `simplejpeg`, `cv2` or `PIL.Image`, or None if the module is not installed."""
    found = _found.get(module)
    if found is not None and sys.modules.get(module) is found:
        return found
    if module in _absent:
        return None
    try:
        # The module in sys.modules may be incomplete, because another thread may be importing it.
        found = _found[module] = importlib.import_module(module)
        return found
    except ImportError:
        if module not in sys.modules:
            _absent.add(module)
        return None


def opencv() -> Any:
    """Returns the module of OpenCV, which resizes images and converts their colours.

    Raises:
        MissingExtraError: OpenCV is not installed.
    """
    return installed("cv2") or import_extra("cv2", "vision", "OpenCV")
