"""Datasets with `async def` methods: finds those that a loader cannot await."""

from __future__ import annotations

import inspect
from typing import Any

from ..declared import is_async, parts_of
from .base import ConcatDataset, SimpleDataset, Subset

_PASS_ON = (ConcatDataset, SimpleDataset, Subset)  # their samples are those of their parts, awaited or not


def check_awaited(dataset: Any) -> None:
    """Raises a ValueError if a dataset of ours contains an async dataset whose samples it does not await."""
    methods = (getattr(type(dataset), name, None) for name in ("__getitem__", "__getitems__"))
    if not is_async(dataset) or any(map(inspect.iscoroutinefunction, methods)):
        return
    if not isinstance(dataset, _PASS_ON):
        inner = next(type(part).__name__ for part in parts_of(dataset) or () if is_async(part))
        outer = type(dataset).__name__
        raise ValueError(
            f"dataset: {outer} contains {inner}, whose samples are awaited, but {outer} does not await them; define a "
            f"class with an `async def __getitem__` that awaits the samples of {inner}, or use transform or Subset"
        )
    for part in parts_of(dataset) or ():
        check_awaited(part)
