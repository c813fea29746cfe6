"""Map-style datasets: of arrays, lists, tables, files and other datasets."""

from .arrays import ArrayDataset, StackDataset, TupleDataset
from .arrow import ArrowDataset
from .base import ConcatDataset, Dataset, SimpleDataset, Subset
from .files import FileDataset
from .packed import PackedList
from .split import random_split
from .stored import H5Dataset, NpyDataset, ZarrDataset

__all__ = [
    "ArrayDataset", "ArrowDataset", "ConcatDataset", "Dataset", "FileDataset", "H5Dataset", "NpyDataset", "PackedList",
    "SimpleDataset", "StackDataset", "Subset", "TupleDataset", "ZarrDataset", "random_split",
]  # fmt: skip
