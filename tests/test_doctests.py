"""The examples in docstrings do what they show."""

import doctest
import importlib

import pytest
from conftest import modules

from gluonloader.randomness import PreservedGenerators

WITH_EXAMPLES = [
    "batchify.default", "batchify.functions", "buckets", "containers", "dataset.arrays", "dataset.base",
    "dataset.iterable", "dataset.join", "dataset.packed", "declared", "executors.pace", "frameworks.base",
    "loader", "memory", "plan.base", "randomness", "sampler.base", "sampler.bijection", "sampler.ordered",
    "sampler.sharded", "sampler.shuffled", "sampler.weighted", "split", "stats", "window",
]  # fmt: skip


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    with PreservedGenerators():
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    if name.removeprefix("gluonloader.") in WITH_EXAMPLES:
        assert result.attempted > 0
