"""Fixtures of the parity suite.

torch is imported in `sides`, by each test file: a skip raised in a conftest would skip all tests of the project.
"""

import functools
import os
import signal
import sys
import warnings

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


class OnlyInTests:
    """A handler of SIGCHLD that calls torch's one only while the function of a test of this suite runs.

    If a worker of a torch loader has died, also of one that nobody uses any more, torch's handler raises an error in
    whatever code the program runs at that moment. In pytest's own code that is the end of another test.
    """

    def __init__(self, handler):
        self.handler = handler
        self.code = None

    def __call__(self, signum, frame):
        where = frame
        while where is not None:
            if where.f_code is self.code:
                return self.handler(signum, frame)
            where = where.f_back


@functools.cache
def handler_of_torch():
    """torch installs its handler with the first worker."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(torch.utils.data.DataLoader([0], num_workers=1))
    handler = OnlyInTests(signal.getsignal(signal.SIGCHLD))
    signal.signal(signal.SIGCHLD, handler)
    return handler


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if "torch" in sys.modules:
        handler_of_torch().code = pyfuncitem.function.__code__
