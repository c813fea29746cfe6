"""Ranks that share workers, in a program that imports torch."""

import pytest
from conftest import load_or_skip, run_program
from sharing import new_name


@pytest.mark.spawn
def test_a_program_with_torch_ends_without_a_message():
    """Then Python keeps the loaders until it has cleared the names of gluonloader."""
    load_or_skip("torch")
    done = run_program(
        "import gluonloader as gl\n"
        "import torch\n"
        f"ranks = gl.Ranks(0, 1, share={new_name()!r})\n"
        "with gl.DataLoader(range(8), 2, num_workers=1, ranks=ranks) as loader:\n"
        "    print(len(list(loader)))\n"
    )
    assert (done.stdout, done.stderr) == ("4\n", "")
