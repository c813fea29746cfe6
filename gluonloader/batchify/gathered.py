"""The batch that `default_batchify` makes, filled while the samples are read.

    first sample -> memory for the large arrays of all samples, which is the batch's; lists for everything else
    each sample  -> copied there and freed before the next one is read

So one sample is alive at a time instead of a whole batch. The next sample reuses its memory, which is still in the
cache. The memory of a whole batch would go back to the system each time, and page faults would bring it back.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..memory import empty
from .arrays import Array
from .default import batch_of, default_batchify, is_large

_ONLY: Final = 0  # the name of the only field of a sample that is an array


class Gathered:
    """Samples that are copied into their batch one by one; `batch()` is equal to that of `default_batchify`.

    A sample that differs from the first one, usually an error, is kept as it is, and so are those after it.

    Args:
        first: the first sample: an array, or a tuple or dict that holds large arrays.
        count: number of samples in the batch.
    """

    def __init__(self, first: Any, count: int) -> None:
        self._kind = type(first)
        self._columns: dict[Any, Array | list[Any]] = {
            name: empty((count, *field.shape), field.dtype) if is_large(field) else []
            for name, field in _fields(first).items()
        }
        self._length = 0
        self._others: list[Any] = []
        self.append(first)

    def append(self, sample: Any) -> None:
        """Adds one sample."""
        fields = _fields(sample) if type(sample) is self._kind and not self._others else {}
        if not self._fits(fields):
            self._others.append(sample)
            return
        for name, column in self._columns.items():
            if isinstance(column, list):
                column.append(fields[name])
            else:
                column[self._length] = fields[name]
        self._length += 1

    def batch(self) -> Any:
        """The batch.

        Raises:
            BatchifyError: as `default_batchify` does.
        """
        if self._others:
            return default_batchify(self._samples())
        return self._filled(
            {
                name: batch_of(column, f"[{name!r}]") if isinstance(column, list) else column
                for name, column in self._columns.items()
            }
        )

    def _samples(self) -> list[Any]:
        """All samples as a list; large arrays are views of the batch's memory."""
        fields = [{name: column[row] for name, column in self._columns.items()} for row in range(self._length)]
        return [*map(self._filled, fields), *self._others]

    def _fits(self, fields: dict[Any, Any]) -> bool:
        """Whether a sample with these fields can be copied into the columns."""
        if fields.keys() != self._columns.keys():
            return False
        for name, column in self._columns.items():
            field = fields[name]
            if not isinstance(column, list) and not (
                type(field) is np.ndarray and field.shape == column.shape[1:] and field.dtype == column.dtype
            ):
                return False
        return True

    def _filled(self, fields: dict[Any, Any]) -> Any:
        """The container of a sample with other fields."""
        if self._kind is dict:
            return fields
        return tuple(fields.values()) if self._kind is tuple else fields[_ONLY]


def _fields(sample: Any) -> dict[Any, Any]:
    """The fields of an array, a tuple or a dict, by name."""
    if type(sample) is dict:
        return sample
    return dict(enumerate(sample)) if type(sample) is tuple else {_ONLY: sample}
