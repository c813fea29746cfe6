"""The batch that `default_batchify` makes, filled while the samples are read.

    first sample -> memory of the batch for the large arrays of all samples; lists for everything else
    each sample  -> copied there and freed before the next sample is read

So only one sample is in memory at a time, not a whole batch of them. The next sample reuses its memory, which is still
in the cache. The memory of many samples would be returned to the system each time, and cause page faults again.
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

    `first` is the first of `count` samples: an array, or a tuple or dict that contains large arrays. If a sample
    differs from it, usually by mistake, that sample and all later samples are stored in a list.
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

    @property
    def has_others(self) -> bool:
        """Whether a sample differs from the first sample."""
        return bool(self._others)

    def samples(self) -> list[Any]:
        """All samples, with views of the large arrays."""
        columns = self._columns.items()
        fields = [{name: column[row] for name, column in columns} for row in range(self._length)]
        return [*map(self._filled, fields), *self._others]

    def batch(self) -> Any:
        if self._others:
            return default_batchify(self.samples())
        columns = self._columns.items()
        batches = {name: batch_of(col, f"[{name!r}]") if isinstance(col, list) else col for name, col in columns}
        return self._filled(batches)

    def _fits(self, fields: dict[Any, Any]) -> bool:
        """Whether a sample with these fields can be copied into the columns."""
        if fields.keys() != self._columns.keys():
            return False
        for name, column in self._columns.items():
            field = fields[name]
            if isinstance(column, np.ndarray):
                alike = type(field) is np.ndarray and field.shape == column.shape[1:] and field.dtype == column.dtype
                if not alike:
                    return False
        return True

    def _filled(self, fields: dict[Any, Any]) -> Any:
        """A container like that of the first sample, with these fields."""
        if self._kind is dict:
            return fields
        return tuple(fields.values()) if self._kind is tuple else fields[_ONLY]


def _fields(sample: Any) -> dict[Any, Any]:
    """The fields of an array, a tuple or a dict, by name."""
    if type(sample) is dict:
        return sample
    return dict(enumerate(sample)) if type(sample) is tuple else {_ONLY: sample}
