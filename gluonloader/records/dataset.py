"""`RecordFileDataset`: a dataset of the records of a `.rec` file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read
from ..indices import checked_index, checked_indices, known_indices
from ..stores.cache import Needed, NodeCache, slow_in_blocks
from .reader import RecordFile


class RecordFileDataset(Dataset):
    """A dataset of the records of a RecordIO file (`.rec`) with an index (`.idx`); a sample is a record as bytes.

    As in Gluon, sample `i` is the record in line `i` of the index; the key of the record does not matter. The file is
    mapped into memory, so all workers share the pages of the file. The records of a batch are read by one bulk read, in
    the order of the file. If the records have a header, use `unpack` or `unpack_img` in a transform.

    Args:
        path: the path of the `.rec` file.
        index: the path of the index; the default for `photos.rec` is `photos.idx` in the same folder.
        key_type: function that converts the text of a key in the index to the key; for example int or str.
        partial: whether the index may list only some of the records of the file. By default a record that the index
            does not list is an error, since otherwise the class would not notice a truncated index.
        cache: a `NodeCache`, if the file and its index are objects in a store and the paths are URLs.

    Raises:
        FileNotFoundError: the file does not exist, or it has no index. `build_index` writes an index.
        StoreError: the store refuses the file, or the file was changed. Also raised when a sample is read.
        RecordError: the index is damaged, or belongs to another file. Also raised when a sample is read, if its record
            is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | None = None,
        key_type: Callable[[str], Any] = int,
        partial: bool = False,
        cache: NodeCache | None = None,
    ) -> None:
        self._records = RecordFile(path, index, key_type, partial, cache)
        self._is_cached = cache is not None

    @property
    def keys(self) -> list[Any]:
        """The keys of the records, in the order of the index."""
        return self._records.keys

    def __getitem__(self, index: Any) -> Any:
        return self._records.read(checked_index(index, len(self._records)))

    @property
    def blocks(self) -> list[int]:
        """The number of records in each block of the file, as a cache reads it: for `BlockShuffleSampler`.

        A local file has blocks of the default size.
        """
        return self._records.blocks()

    def needed_blocks(self, indices: Any) -> list[Needed]:
        """The blocks in which samples lie; see `gluonloader.declared`."""
        needed = self._records.needed(known_indices(indices, len(self)))
        return [] if needed is None else [needed]

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        return slow_in_blocks(self, indices) if self._is_cached else ""

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return self._records.read_many(checked_indices(indices, len(self._records)))

    _parts = ()

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._records.path!r})"
