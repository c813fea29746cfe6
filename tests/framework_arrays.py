"""Arrays of torch, JAX and MXNet, and datasets of them."""

from collections import namedtuple

import numpy as np

Point = namedtuple("Point", "x y")


def package(array):
    return type(array).__module__.partition(".")[0].replace("jaxlib", "jax")


def values(array):
    return array.asnumpy() if hasattr(array, "asnumpy") else np.asarray(array)


def make(framework, array):
    """An array of the framework with memory of its own."""
    if framework == "torch":
        import torch

        return torch.tensor(array)
    if framework == "jax":
        import jax.numpy

        return jax.numpy.array(array)
    import mxnet

    new = mxnet.nd.empty(array.shape, dtype=array.dtype)
    new[:] = array
    return new


class Samples:
    """Sample i: an array of the framework full of i, and i."""

    def __init__(self, framework, length=12):
        self.arrays = [make(framework, np.full((2, 3), i, np.float32)) for i in range(length)]

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return {"x": self.arrays[index], "i": index}


class Plain:
    """Sample i: a NumPy array full of i, and more."""

    def __init__(self, length=12):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return Point(np.full((2, 3), index, np.float32), [np.int32(index), f"s{index}"])
