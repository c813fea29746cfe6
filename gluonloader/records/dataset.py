"""`RecordFileDataset`: the records of a `.rec` file as a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..dataset import Dataset
from ..dataset.bulk import bulk_read
from ..indices import checked_index, checked_indices
from .reader import RecordFile


class RecordFileDataset(Dataset):
    """A dataset of the records of a RecordIO file (`.rec`) with an index (`.idx`); a sample is a record as bytes.

    Sample `i` is the record in line `i` of the index, whatever its key is, as in Gluon. The file is mapped into memory,
    so all workers share its pages. A batch is one bulk read in the order of the file. Use `unpack` or `unpack_img` in a
    transform for records that have a header.

    Args:
        path: the `.rec` file.
        index: the path of the index; by default `photos.idx` beside `photos.rec`.
        key_type: makes a key from the text in the index.
        partial: accept an index that does not list all records of the file. By default a missing record is an error,
            since otherwise an index that was cut off would not be noticed.

    Raises:
        FileNotFoundError: there is no such file, or no index; `build_index` writes an index.
        RecordError: the index is damaged or does not belong to the file, or, raised by a read, a record is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | None = None,
        key_type: Callable[[str], Any] = int,
        partial: bool = False,
    ) -> None:
        self._records = RecordFile(path, index, key_type, partial)

    @property
    def keys(self) -> list[Any]:
        """The keys of the records, in the order of the index."""
        return self._records.keys

    def __getitem__(self, index: Any) -> Any:
        return self._records.read(checked_index(index, len(self._records)))

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return self._records.read_many(checked_indices(indices, len(self._records)))

    _parts = ()

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._records.path!r})"
