"""`ImageRecordDataset`: the images of a RecordIO file, as MXNet's `im2rec` and `gluonloader records make` write it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..dataset import Dataset
from ..dataset.bulk import bulk_read, each
from ..errors import RecordError
from ..indices import as_list
from ..records import RecordFileDataset, unpack
from .encoded import ImageDataset, Path


class ImageRecordDataset(ImageDataset):
    """The images of a `.rec` file; a sample is (image, label), as in Gluon.

    The label is a float, or a float32 array of shape (labels,) if a record has several labels.

    Args:
        filename: the `.rec` file; its index is the `.idx` file beside it.
        flag: 1 for images of shape (H, W, 3), RGB; 0 for gray images of shape (H, W, 1). Images are uint8.
        transform: called as `transform(image, label)`; what it returns is the sample.
        options: `min_size`, `orient` and `max_pixels`, see `decode`.

    Raises:
        FileNotFoundError: there is no such file, or no index.
        RecordError: the index or, raised by a read, a record is damaged.
        ImageError: raised by a read if an image cannot be decoded; the text names the file and the record.
    """

    def __init__(
        self, filename: Path, flag: int = 1, transform: Callable[..., Any] | None = None, **options: Any
    ) -> None:
        super().__init__(_LabelledRecords(os.fspath(filename)), flag, transform, **options)


class _LabelledRecords(Dataset):
    """The bytes of the images of a RecordIO file, and their labels."""

    def __init__(self, path: str) -> None:
        self._path, self._records = path, RecordFileDataset(path)

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
