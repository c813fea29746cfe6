"""RecordIO files (`.rec` with `.idx`), as MXNet writes and reads them: reader, writer, datasets and record headers."""

from .dataset import RecordFileDataset
from .headers import IRHeader, pack, pack_img, unpack, unpack_img
from .index import build_index
from .indexed import IndexedRecordIO

__all__ = [
    "IRHeader",
    "IndexedRecordIO",
    "RecordFileDataset",
    "build_index",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]
