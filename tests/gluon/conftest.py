"""Fixtures of the parity suite.

MXNet is imported in `sides`, by each test file: a skip raised in a conftest would skip all tests of the project.
"""

import os

import pytest
from parity import allow_reruns, no_hang

pytest.register_assert_rewrite("installs")

FOLDER = os.path.dirname(__file__) + os.sep

# MXNet's own, at run time; the second only where Gluon runs, so that none of ours is hidden.
WARNINGS = ["ignore:.*scipy.sparse:DeprecationWarning"]
WARNINGS_OF_GLUON = ["ignore:ndarray.* has been renamed:DeprecationWarning"]


def pytest_collection_modifyitems(items):
    allow_reruns(items, "gdata", "gluon")
    for item in items:
        if not str(item.path).startswith(FOLDER):
            continue
        side = getattr(item, "callspec", None) and item.callspec.params.get("gdata")
        for warning in WARNINGS + (WARNINGS_OF_GLUON if side == "gluon" else []):
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(params=["gluon", "gluonloader"])
def gdata(request):
    """The module under test."""
    from .sides import SIDES

    return SIDES[request.param]


@pytest.fixture(params=["serial", "threads", "processes"])
def way(request):
    """Where batches are made; the loader's arguments for it are `WAYS[way]`."""
    return request.param


@pytest.fixture(autouse=True)
def bounded():
    """No test takes longer than a minute: Gluon may hang when a loader with work in flight is deleted."""
    with no_hang():
        yield


@pytest.fixture
def np_mode():
    """MXNet's NumPy mode."""
    from .sides import mx

    mx.util.set_np()
    yield mx.np
    mx.util.reset_np()
