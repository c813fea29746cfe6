"""Map-style datasets: of arrays, lists, tables, files and other datasets."""

from .arrays import ArrayDataset, StackDataset, TupleDataset
from .arrow import ArrowDataset
from .base import ConcatDataset, Dataset, SimpleDataset, Subset
from .files import FileDataset
from .packed import PackedList
from .packed_rows import PackedDataset
from .split import random_split
from .stored import H5Dataset, NpyDataset, ZarrDataset
from .tokens import TokenDataset, TokenWindows

__all__ = [
    "ArrayDataset", "ArrowDataset", "ConcatDataset", "Dataset", "FileDataset", "H5Dataset", "NpyDataset",
    "PackedDataset", "PackedList", "SimpleDataset", "StackDataset", "Subset", "TokenDataset", "TokenWindows",
    "TupleDataset", "ZarrDataset", "random_split",
]  # fmt: skip
