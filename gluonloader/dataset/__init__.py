"""What to load: map-style datasets, from arrays, lists and other datasets."""

from .arrays import ArrayDataset as ArrayDataset
from .arrays import SimpleDataset as SimpleDataset
from .base import Dataset as Dataset

__all__ = ["ArrayDataset", "Dataset", "SimpleDataset"]
