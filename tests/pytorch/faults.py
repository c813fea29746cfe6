"""Samplers, datasets and functions that fail, for the tests of what is equal and of what differs."""

import pytest
from parity import Custom

from .sides import torch


class Broken(torch.utils.data.Sampler):
    """A sampler that fails after some indices."""

    def __init__(self, good):
        self.good = good

    def __iter__(self):
        yield from range(self.good)
        raise Custom("no index")

    def __len__(self):
        return 8


def fail_to_start(worker):
    raise Custom("no GPU")


def raised(loader):
    """The error that an epoch raises."""
    with pytest.raises(Exception) as caught:
        list(loader)
    return caught.value
