"""`StackDataset`: datasets side by side, whose fields may have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..indices import lengths_of
from ..rows import Rows
from .arrays import has_bulk_read, read_column, rows_in_memory
from .base import Dataset
from .bulk import are_ints, bulk_read, each


class StackDataset(Dataset):
    """Datasets of one length, side by side: a sample is the tuple, or the dict by name, of their samples.

    Args:
        datasets: at least one dataset, array or list. Given by keyword, samples are dicts. A single one gives tuples
            of one field, unlike in `ArrayDataset`.

    Raises:
        ValueError: no dataset is given, only some have names, one has no length, or their lengths differ.

    >>> StackDataset(image=[10, 20], name=["a", "b"])[1]
    {'image': 20, 'name': 'b'}
    """

    def __init__(self, *args: Any, **datasets: Any) -> None:
        if bool(args) == bool(datasets):
            raise ValueError("StackDataset: give datasets either all without names or all by keyword, and at least one")
        self._datasets: Any = datasets or args
        lengths = lengths_of("datasets", self._datasets)
        if len(set(lengths)) != 1:
            found = dict(zip(datasets, lengths, strict=True)) if datasets else lengths
            raise ValueError(f"StackDataset: the datasets have lengths {found}; all must have the same length")
        self._rows = rows_in_memory(self._datasets, self._parts)

    def __getitem__(self, index: Any) -> Any:
        return self._sample([part[index] for part in self._parts])

    @bulk_read(lambda self: has_bulk_read(self._parts))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        if not are_ints(indices):
            return each(self.__getitem__, indices, indices)
        if self._rows is not None:
            return self._rows.at(indices)
        return Rows(self._sample([read_column(part, indices) for part in self._parts]))

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._datasets if isinstance(self._datasets, tuple) else tuple(self._datasets.values())

    def _sample(self, fields: Sequence[Any]) -> Any:
        if isinstance(self._datasets, tuple):
            return tuple(fields)
        return dict(zip(self._datasets, fields, strict=True))


TupleDataset = StackDataset  # its name in Chainer
