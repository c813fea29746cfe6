"""Columns in .npy, HDF5 and Zarr files: how tests write them and open them as a dataset."""

import warnings

import numpy as np
from conftest import load

import gluonloader as gl

h5py, zarr = load("h5py"), load("zarr")

LENGTH = 41


COLUMNS = {
    "images": np.arange(LENGTH * 6, dtype=np.float32).reshape(LENGTH, 2, 3),
    "labels": np.arange(LENGTH) % 10,
    "big-endian": np.arange(LENGTH, dtype=">i4"),
    "flags": np.arange(LENGTH) % 3 == 0,
    "codes": np.array([f"c{i}" for i in range(LENGTH)], "S4"),
    "nothing": np.zeros((LENGTH, 0, 2), np.int8),
    "records": np.zeros(LENGTH, [("a", "<i2"), ("b", "<f4")]),
}


def write_npy(folder, columns, chunk):
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column)


def write_h5(folder, columns, chunk):
    with h5py.File(folder / "a.h5", "w") as file:
        for name, column in columns.items():
            chunks = (chunk, *column.shape[1:]) if chunk and column.size else None
            file.create_dataset(name, data=column, chunks=chunks, compression="gzip" if chunks else None)


def write_zarr(folder, columns, chunk):
    group = zarr.open_group(str(folder / "a.zarr"), mode="w")
    create = getattr(group, "create_array", None) or group.create_dataset
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dtypes that other programs may not know
        for name, column in columns.items():
            chunks = tuple([max(1, size) for size in column.shape])
            create(name, data=column, chunks=(chunk, *chunks[1:]) if chunk else chunks)


class Kind:
    """One kind of file: `write` columns into a folder, `open` them as a dataset."""

    def __init__(self, name, library, write):
        self.name, self.library, self.write_columns = name, library, write

    def write(self, folder, columns=COLUMNS, chunk=7):
        self.write_columns(folder, columns, chunk)

    def open(self, folder, *names, **named):
        if self.name == "npy":
            paths = [folder / f"{name}.npy" for name in names]
            return gl.tables.NpyDataset(*paths, **{key: folder / f"{name}.npy" for key, name in named.items()})
        made = {"h5": gl.tables.H5Dataset, "zarr": gl.tables.ZarrDataset}[self.name]
        return made(folder / f"a.{self.name}", *names, **named)


KINDS = [Kind("npy", np, write_npy), Kind("h5", h5py, write_h5), Kind("zarr", zarr, write_zarr)]
