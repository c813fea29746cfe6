"""Fixtures of the parity suite.

torch is imported in `sides`, by each test file: a skip raised in a conftest would skip all tests of the project.
"""

from pathlib import Path

import pytest
from parity import one_minute

pytest.register_assert_rewrite("pytorch.sides")

# More workers than cores; of the tests, and on machines with one core.
WARNING = "ignore:This DataLoader will create:UserWarning"


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(WARNING))


@pytest.fixture(params=["torch", "gluonloader"])
def loader_class(request):
    """The class under test, in tests of what differs."""
    from .sides import SIDES

    return SIDES[request.param]


@pytest.fixture(params=[0, 2], ids=["serial", "workers"])
def workers(request):
    return request.param


@pytest.fixture(autouse=True)
def bounded():
    """No test takes longer than a minute: torch hangs on some errors."""
    with one_minute():
        yield
