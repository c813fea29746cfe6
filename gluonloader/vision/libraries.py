"""The libraries that decode and resize images; each is imported when it is first needed."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from ..errors import MissingExtraError


@cache
def installed(module: str) -> Any:
    """The module `simplejpeg`, `cv2` or `PIL.Image`; None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def opencv() -> Any:
    """OpenCV, which resizes images and converts their colours.

    Raises:
        MissingExtraError: OpenCV is not installed.
    """
    cv2 = installed("cv2")
    if cv2 is None:
        raise MissingExtraError("vision")
    return cv2
