"""The batch of Gluon's default batchify function, as NumPy arrays; without MXNet, so spawned workers start fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..batchify import default_batchify, on_field
from ..batchify.arrays import IS_NONE
from ..declared import calls_no_user_code
from ..errors import BatchifyError
from ..frameworks import owner_by_base
from ..rows import Rows


@calls_no_user_code
def gluon_batchify(samples: Sequence[Any]) -> Any:
    """Returns a list with one batch per field for tuples, one array for lists, and otherwise the default batch."""
    if isinstance(samples, Rows):
        if isinstance(samples.held, tuple):
            return _batches(Rows(column, samples.indices) for column in samples.held)
        if isinstance(samples.held, np.ndarray):
            return default_batchify(samples)
        samples = list(samples)
    first = samples[0]
    if isinstance(first, tuple):
        for row, sample in enumerate(samples):
            if not isinstance(sample, tuple) or len(sample) != len(first):
                what = f"{sample!r:.80} is not a tuple of {len(first)} fields, unlike sample 0"
                what += "; return the same fields from each sample in the dataset"
                raise BatchifyError(IS_NONE if sample is None else what, row)
        return _batches(zip(*samples, strict=True))
    if isinstance(first, list) or _is_convertible(first):
        samples = [_array(sample, row) for row, sample in enumerate(samples)]
    elif getattr(first, "stype", "default") != "default":  # Gluon stacks MXNet's sparse arrays into dense batches
        samples = [sample.tostype("default") for sample in samples]
    return default_batchify(samples)


def _batches(columns: Iterable[Sequence[Any]]) -> list[Any]:
    return [on_field(f"[{i}]", gluon_batchify, column) for i, column in enumerate(columns)]


def _is_convertible(sample: Any) -> bool:
    """Whether it is no array, but can be made one, as an image of Pillow."""
    is_of_numpy = isinstance(sample, (np.ndarray, np.generic))
    return not is_of_numpy and hasattr(sample, "__array__") and owner_by_base(type(sample)) is None


def _array(sample: Any, row: int) -> Any:
    if sample is None:
        raise BatchifyError(IS_NONE, row)
    of_framework = isinstance(sample, list) and bool(sample) and owner_by_base(type(sample[0])) is not None
    array = None if of_framework else np.asarray(sample)
    if array is None or array.dtype.hasobject:
        what = f"this {type(sample).__name__} cannot be made one array of numbers"
        raise BatchifyError(f"{what}; return a tuple of fields instead", row)
    return array
