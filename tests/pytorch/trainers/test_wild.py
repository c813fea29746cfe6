"""The programs of tests/pytorch/wild whose libraries are installed: their batches are those of torch."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from ..wild.compare import PACKAGES, result

DIFFERS = {"torchio_queue"}  # it draws random numbers while it reads samples; see docs/torch.md


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("name", sorted(PACKAGES.keys() - DIFFERS))
def test_a_program_gets_the_batches_of_torch(name, workers):
    try:
        version(PACKAGES[name])
    except PackageNotFoundError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    assert result(name, workers).startswith("all ")
