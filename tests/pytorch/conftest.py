"""Fixtures of the parity suite.

torch is imported in `sides`, by each test file: a skip raised in a conftest would skip all tests of the project.
"""

import os
import signal

import pytest
from parity import bounded, mark  # noqa: F401 - a fixture for all tests of this folder

pytest.register_assert_rewrite("pytorch.sides", "installs")

FOLDER = os.path.dirname(__file__) + os.sep

WARNINGS = [
    "ignore:This DataLoader will create:UserWarning",  # more workers than cores
    # torch's handler of SIGCHLD may raise its error while torch deletes an iterator.
    "ignore:.*_MultiProcessingDataLoaderIter.__del__:pytest.PytestUnraisableExceptionWarning",
]


def pytest_collection_modifyitems(items):
    mark(items, FOLDER, "loader_class", "torch", WARNINGS)


@pytest.fixture(params=["torch", "gluonloader"])
def loader_class(request):
    """The class under test, in tests of what differs."""
    from .sides import SIDES

    return SIDES[request.param]


@pytest.fixture(params=[0, 2], ids=["serial", "workers"])
def workers(request):
    return request.param


_handler = signal.SIG_DFL


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """torch's handler of SIGCHLD is installed only while the function of a test of this suite runs.

    If a worker of a torch loader has died, also of one that nobody uses any more, the handler raises an error in
    whatever code of the program is running. That must not be pytest's own code after the test.
    """
    global _handler
    before = signal.signal(signal.SIGCHLD, _handler)
    try:
        return (yield)
    finally:
        _handler = signal.signal(signal.SIGCHLD, before)
