"""The examples in docstrings do what they show."""

import doctest
import importlib

import pytest
from conftest import modules

from gluonloader.randomness import PreservedGenerators

WITH_EXAMPLES = [
    "batchify.default", "batchify.functions", "dataset.arrays", "dataset.base", "dataset.iterable",
    "dataset.compact", "dataset.split", "declared", "describe", "executors.base", "frameworks.base", "loader",
    "position.progress", "loading.stats", "memory.allocator", "randomness.seeds", "rows", "sampler.base",
    "sampler.bijection", "sampler.buckets", "sampler.ordered", "sampler.passes", "sampler.sharded", "sampler.shuffled",
    "sampler.weighted", "tree", "units",
]  # fmt: skip


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    with PreservedGenerators():
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    if name.removeprefix("gluonloader.") in WITH_EXAMPLES:
        assert result.attempted > 0
