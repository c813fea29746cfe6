"""Map-style datasets: of arrays, lists, tables, files and other datasets."""

from .arrays import ArrayDataset, StackDataset, TupleDataset
from .arrow import ArrowDataset
from .base import Dataset, SimpleDataset, Subset
from .join import ConcatDataset, random_split
from .packed import PackedList
from .stored import H5Dataset, NpyDataset, ZarrDataset

__all__ = [
    "ArrayDataset", "ArrowDataset", "ConcatDataset", "Dataset", "H5Dataset", "NpyDataset", "PackedList",
    "SimpleDataset", "StackDataset", "Subset", "TupleDataset", "ZarrDataset", "random_split",
]  # fmt: skip
