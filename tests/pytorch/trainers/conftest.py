"""The tests of trainers start programs, which have their own time limit: importing several trainers takes long."""

import pytest


@pytest.fixture
def bounded():
    """No time limit for the test itself, unlike in the tests beside this folder."""
