"""The examples in docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest

import gluonloader
from gluonloader.randomness import preserved_generators

MODULES = ["gluonloader", *(module.name for module in pkgutil.walk_packages(gluonloader.__path__, "gluonloader."))]
WITH_EXAMPLES = ["batchify", "dataset.arrays", "dataset.base", "loader", "memory", "randomness", "sampler", "window"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    with preserved_generators():
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    if name.removeprefix("gluonloader.") in WITH_EXAMPLES:
        assert result.attempted > 0
