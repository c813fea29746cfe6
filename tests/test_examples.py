"""The examples run as a user would run them, and reach what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def train_digits(*arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "train_digits.py", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return float(re.search(r"^test accuracy: (\S+)$", done.stdout, re.MULTILINE)[1])


@pytest.fixture(autouse=True)
def _needs_the_examples_extra():
    pytest.importorskip("sklearn")
    pytest.importorskip("tqdm")


WAYS = (["--workers", "2"], ["--workers", "0"], ["--workers", "1", "--start-method", "spawn"], ["--executor", "thread"])


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_digits_are_learned(way):
    assert train_digits("--epochs", "30", *way) > 0.95
