"""Gluon's vision datasets and transforms, unchanged."""

import sys
from typing import Any

from ..gluon import vision as _gluon

transforms: Any = _gluon.transforms
sys.modules[f"{__name__}.transforms"] = transforms


def __getattr__(name: str) -> Any:
    return getattr(_gluon, name)
