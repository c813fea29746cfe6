"""Datasets of columns: data frames and Parquet files, and the arrays of `.npy`, HDF5 and Zarr files.

`import gluonloader` does not import this package: write `from gluonloader import tables`.
"""

from .arrow import ArrowDataset
from .stored import H5Dataset, NpyDataset, ZarrDataset

__all__ = ["ArrowDataset", "H5Dataset", "NpyDataset", "ZarrDataset"]
