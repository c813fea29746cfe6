"""Fixtures of the parity suite.

MXNet is imported in `sides`, by each test file: a skip raised in a conftest would skip all tests of the project.
"""

import os

import pytest
from parity import bounded, mark  # noqa: F401 - a fixture for all tests of this folder

pytest.register_assert_rewrite("installs")

FOLDER = os.path.dirname(__file__) + os.sep

# MXNet's own, at run time; the second only where Gluon runs, so that none of ours is hidden.
WARNINGS = ["ignore:.*scipy.sparse:DeprecationWarning"]
WARNINGS_OF_GLUON = ["ignore:ndarray.* has been renamed:DeprecationWarning"]


def pytest_collection_modifyitems(items):
    mark(items, FOLDER, "gdata", "gluon", WARNINGS, WARNINGS_OF_GLUON)


@pytest.fixture(params=["gluon", "gluonloader"])
def gdata(request):
    """The module under test."""
    from .sides import SIDES

    return SIDES[request.param]


@pytest.fixture(params=["serial", "threads", "processes"])
def way(request):
    """Where batches are made; the loader's arguments for it are `WAYS[way]`."""
    return request.param


@pytest.fixture
def np_mode():
    """MXNet's NumPy mode."""
    from .sides import mx

    mx.util.set_np()
    yield mx.np
    mx.util.reset_np()
