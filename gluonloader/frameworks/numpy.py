"""NumPy as a framework like the others, for `output="numpy"`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Array, Empty, without_carrier


class NumPy:
    """NumPy arrays."""

    name = "numpy"

    def owns(self, kind: type) -> bool:
        return kind is np.ndarray

    def to_numpy(self, array: Any) -> Array | None:
        return np.asarray(array)

    def from_numpy(self, array: Array) -> Any:
        cure = "convert it in the dataset, or run `pip install ml_dtypes` and import it, which adds dtypes to NumPy"
        return without_carrier(array, "NumPy", cure)

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Any:
        return None

    def pin(self, array: Any, device_id: int) -> Any:
        return array
