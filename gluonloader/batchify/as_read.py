"""What `default_batchify` makes of samples, made while these are read one by one.

    first sample -> room for all samples' large arrays in the batch's memory, lists for all else
    each sample  -> copied there, and let go of, before the next one is read

So one sample is alive at a time, and not a whole batch: its memory serves the next one, and is still in the cache when
it is copied. That of a whole batch would go back to the system each time, and be had anew, page by page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from ..memory import empty
from .default import Array, batch_of, default_batchify

__all__ = ["Gathered", "gather"]

_LARGE: Final = 32 * 1024  # bytes of an array in a sample: smaller ones are joined more quickly all at once
_ALONE: Final = 0  # the name of a field, where a sample is one array


def gather(first: Any, count: int) -> list[Any] | Gathered:
    """What to append the samples after the first one to: a list, or, if they hold large arrays, room for `count`."""
    kind = type(first)
    values = (first,) if kind is np.ndarray else first if kind is tuple else first.values() if kind is dict else ()
    return Gathered(first, count) if count > 1 and any(map(_is_large, values)) else [first]


class Gathered:
    """Samples that are becoming a batch; `batch` is what `default_batchify` makes of a list of them.

    A sample that is not like the first one, which is an error in most cases, stays as it is, with those after it.
    """

    def __init__(self, first: Any, count: int) -> None:
        fields = dict(_fields(first))
        large = {name: field for name, field in fields.items() if _is_large(field)}
        self._kind, self._names = type(first), fields.keys()
        self._like = [(name, array.shape, array.dtype) for name, array in large.items()]
        self._large: dict[Any, Array] = {name: empty((count, *shape), dtype) for name, shape, dtype in self._like}
        self._small: dict[Any, list[Any]] = {name: [] for name in fields if name not in large}
        self._length = 0
        self._others: list[Any] = []
        self.append(first)

    def append(self, sample: Any) -> None:
        """One more."""
        if self._others or not self._is_alike(sample):
            self._others.append(sample)
            return
        if self._kind is np.ndarray:
            self._large[_ALONE][self._length] = sample
        else:
            for name, column in self._large.items():
                column[self._length] = sample[name]
            for name, values in self._small.items():
                values.append(sample[name])
        self._length += 1

    def samples(self) -> list[Any]:
        """All samples, as they would be in a list, but that large arrays look into the batch's memory."""
        return [*map(self._sample, range(self._length)), *self._others]

    def batch(self) -> Any:
        """The batch.

        Raises:
            BatchifyError: as `default_batchify` does.
        """
        if self._others:
            return default_batchify(self.samples())
        if self._kind is np.ndarray:
            return self._large[_ALONE]
        columns = {
            name: self._large[name] if name in self._large else batch_of(self._small[name], f"[{name!r}]")
            for name in self._names
        }
        return columns if self._kind is dict else tuple(columns.values())

    def _is_alike(self, sample: Any) -> bool:
        if type(sample) is not self._kind:
            return False
        if self._kind is np.ndarray:
            ((_, shape, dtype),) = self._like
            return bool(sample.shape == shape and sample.dtype == dtype)
        if len(sample) != len(self._names) or (self._kind is dict and sample.keys() != self._names):
            return False
        for name, shape, dtype in self._like:
            field = sample[name]
            if type(field) is not np.ndarray or field.shape != shape or field.dtype != dtype:
                return False
        return True

    def _sample(self, row: int) -> Any:
        """A sample that was copied already."""
        if self._kind is np.ndarray:
            return self._large[_ALONE][row]
        fields = {name: (self._large[name] if name in self._large else self._small[name])[row] for name in self._names}
        return fields if self._kind is dict else tuple(fields.values())


def _fields(sample: Any) -> Iterable[tuple[Any, Any]]:
    """The fields of an array, a tuple or a dict, by name."""
    kind = type(sample)
    return ((_ALONE, sample),) if kind is np.ndarray else enumerate(sample) if kind is tuple else sample.items()


def _is_large(field: Any) -> bool:
    return (
        type(field) is np.ndarray and field.nbytes >= _LARGE and field.dtype.kind in "biufcmM" and field.dtype.isnative
    )
