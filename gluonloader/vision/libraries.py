"""The libraries that decode and resize images; each is imported when it is first needed."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from ..errors import MissingExtraError

_found: Final[dict[str, Any]] = {}
_absent: Final[set[str]] = set()  # a search for a module that is not installed takes as long as decoding a small image


def installed(module: str) -> Any:
    """The module `simplejpeg`, `cv2` or `PIL.Image`; None if it is not installed."""
    found = _found.get(module)
    if found is not None and sys.modules.get(module) is found:
        return found
    if module in _absent:
        return None
    try:
        # Not from sys.modules: another thread may be importing it.
        found = _found[module] = importlib.import_module(module)
        return found
    except ImportError:
        if module not in sys.modules:
            _absent.add(module)
        return None


def opencv() -> Any:
    """OpenCV, which resizes images and converts their colours.

    Raises:
        MissingExtraError: OpenCV is not installed.
    """
    cv2 = installed("cv2")
    if cv2 is None:
        raise MissingExtraError("vision", "OpenCV")
    return cv2
