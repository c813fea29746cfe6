"""`ImageRecordDataset`: the images of a RecordIO file, which `im2rec` or `gluonloader records make` has written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, each
from ..errors import RecordError
from ..indices import as_list
from ..records import RecordFileDataset, unpack
from ..stores.cache import NodeCache
from .encoded import ImageDataset, Path


class ImageRecordDataset(ImageDataset):
    """A dataset of the images in a `.rec` file; a sample is (image, label), as in Gluon.

    The label is a float. If a record has several labels, they are a float32 array of shape (number of labels,).

    Args:
        filename: the path of the `.rec` file; the index is the `.idx` file with the same name.
        flag: 1 for RGB images of shape (H, W, 3), 0 for gray images of shape (H, W, 1). The dtype is uint8.
        transform: function that is called as `transform(image, label)`; its result is the sample.
        index: see `RecordFileDataset`.
        key_type: see `RecordFileDataset`.
        partial: see `RecordFileDataset`.
        cache: see `RecordFileDataset`.
        options: the arguments `min_size`, `orient` and `max_pixels` of `decode`.

    Raises:
        FileNotFoundError: the file does not exist, or it has no index.
        RecordError: the index is damaged. Also raised when a sample is read, if its record is damaged.
        ImageError: raised when a sample is read, if its image cannot be decoded; the text names the file and the
            record.
    """

    def __init__(
        self,
        filename: Path,
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        index: Path | None = None,
        key_type: Callable[[str], Any] = int,
        partial: bool = False,
        cache: NodeCache | None = None,
        **options: Any,
    ) -> None:
        records = RecordFileDataset(filename, index, key_type, partial, cache)
        self._records = records
        super().__init__(_LabelledRecords(os.fsdecode(filename), records), flag, transform, **options)

    @property
    def blocks(self) -> list[int]:
        """The number of images in each block of the file, as a cache reads it: for `BlockShuffleSampler`."""
        return self._records.blocks


class _LabelledRecords(Dataset):
    """A dataset of the image files in a RecordIO file. A sample is (bytes of the image file, label)."""

    def __init__(self, path: str, records: RecordFileDataset) -> None:
        self._path, self._records = path, records

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return self._unpacked(index, self._records[index])

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = as_list(indices)
        records = iter(self._records.__getitems__(keys))
        return each(lambda key: self._unpacked(key, next(records)), keys, keys)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._records,)

    def name_of(self, index: Any) -> str:
        return f"{self._path}, record {index}"

    def _unpacked(self, index: Any, record: Any) -> tuple[Any, Any]:
        try:
            header, data = unpack(record)
        except RecordError as error:
            raise RecordError(error.reason, self.name_of(index)) from None
        return data, header.label
