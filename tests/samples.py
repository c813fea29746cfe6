"""Datasets whose samples show their index, for several test files and for the programs that tests start."""

import dataclasses
import threading
import time

import numpy as np

import gluonloader

MB = 1 << 20


class Images:
    """Each sample is an image of 1 MB, filled with its index."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return np.full(MB // 4, index, np.int32)


class Numbered:
    """Each sample is an array filled with its index, large enough to notice a batch that was overwritten."""

    def __init__(self, size=400):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return np.full(500, index, np.int32)


class Keys:
    """Each sample is its key, which may also be a row of documents."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, key):
        return key


class FirstWaits(Keys):
    """Sample 0 waits until a file exists, so all others may come before it."""

    def __init__(self, size, go):
        super().__init__(size)
        self.go = go

    def __getitem__(self, index):
        while index == 0 and not self.go.exists():
            time.sleep(0.01)
        return index


class Sleepless(Numbered):
    """Sample 1 touches a file, and no sample after sample 0 ever ends."""

    def __init__(self, started):
        super().__init__()
        self.started = started

    def __getitem__(self, index):
        if index:
            if index == 1:
                open(self.started, "w").close()
            threading.Event().wait(3600)
        return index


class Shards(gluonloader.IterableDataset):
    """Shards of different lengths, which are read only one by one."""

    def __init__(self):
        pass

    def __iter__(self):
        raise AssertionError

    def shard(self, num_shards, index):
        return [1000 * index + number for number in range(10 + index)]


def plain(value):
    """A batch as nested Python objects, with dtypes, to be compared by ==."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return type(value), plain(vars(value))
    if isinstance(value, (tuple, list)):
        return type(value), [plain(item) for item in value]
    return value
