"""Map-style datasets: of arrays, lists, tables, files and other datasets."""

from .arrays import ArrayDataset as ArrayDataset
from .arrow import ArrowDataset as ArrowDataset
from .base import Dataset as Dataset
from .base import SimpleDataset as SimpleDataset
from .base import Subset as Subset
from .join import ConcatDataset as ConcatDataset
from .join import random_split as random_split
from .packed import PackedList as PackedList
from .stack import StackDataset as StackDataset
from .stack import TupleDataset as TupleDataset
from .stored import H5Dataset as H5Dataset
from .stored import NpyDataset as NpyDataset
from .stored import ZarrDataset as ZarrDataset

__all__ = [
    "ArrayDataset",
    "ArrowDataset",
    "ConcatDataset",
    "Dataset",
    "H5Dataset",
    "NpyDataset",
    "PackedList",
    "SimpleDataset",
    "StackDataset",
    "Subset",
    "ZarrDataset",
    "random_split",
]
