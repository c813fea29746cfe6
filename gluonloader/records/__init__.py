"""Reads and writes RecordIO files (`.rec` with an index `.idx`) and the headers of records, as MXNet does."""

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
