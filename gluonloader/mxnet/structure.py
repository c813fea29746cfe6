"""Samples -> batch as Gluon's default batchify has it, in NumPy arrays; no MXNet here: spawned workers start fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batchify import default_batchify, on_field
from ..declared import calls_no_user_code
from ..errors import BatchifyError
from ..frameworks import owner_by_base
from ..rows import Rows

__all__ = ["gluon_batchify"]


@calls_no_user_code
def gluon_batchify(samples: Sequence[Any]) -> Any:
    """Tuples become a list of the batches of their fields; a list is one array; all else as `default_batchify` has it.

    Raises:
        BatchifyError: samples do not fit together.
    """
    if isinstance(samples, Rows):
        if isinstance(samples.held, tuple):
            columns = [Rows._of(column, samples.indices, len(samples)) for column in samples.held]
            return [on_field(f"[{i}]", gluon_batchify, column) for i, column in enumerate(columns)]
        if isinstance(samples.held, np.ndarray):
            return default_batchify(samples)
        samples = list(samples)
    first = samples[0]
    if isinstance(first, tuple):
        for position, sample in enumerate(samples):
            if not isinstance(sample, tuple) or len(sample) != len(first):
                raise BatchifyError(f"{sample!r:.80} is not a tuple of {len(first)} fields, as sample 0 is", position)
        return [on_field(f"[{i}]", gluon_batchify, column) for i, column in enumerate(zip(*samples, strict=True))]
    if isinstance(first, list):
        samples = [_array(sample, position) for position, sample in enumerate(samples)]
    elif getattr(first, "stype", "default") != "default":  # MXNet's sparse arrays, which Gluon stacks as dense ones
        samples = [sample.tostype("default") for sample in samples]
    return default_batchify(samples)


def _array(sample: list[Any], position: int) -> Any:
    array = np.asarray(sample) if not sample or owner_by_base(type(sample[0])) is None else None
    if array is None or array.dtype.hasobject:
        raise BatchifyError("a list is one array of numbers, but this one holds other things: return a tuple", position)
    return array
