"""Workers keep freed memory, so that samples with large temporary arrays do not cause page faults again."""

import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.spawn,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns freed blocks and adapts"),
]

# The test runs a new program. If this process has freed a large block, glibc keeps freed memory in forked workers, too.
PROGRAM = """
import resource, sys
import numpy as np
from gluonloader import DataLoader

class Decoded:
    def __len__(self):
        return 300
    def __getitem__(self, index):
        temporaries = [np.full(1 << 19, index % 250, np.uint8) for _ in range(4)]
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if __name__ == "__main__":
    start_method = sys.argv[1]
    how = {"executor": "thread"} if start_method == "thread" else {"start_method": start_method}
    with DataLoader(Decoded(), 50, num_workers=1, **how) as loader:
        faults = np.concatenate(list(loader))
    print(np.diff(faults)[100:].mean())
"""


def faults(tmp_path, start_method):
    """Page faults per sample, after the first hundred samples."""
    script = tmp_path / "program.py"  # a file, because spawned workers import the main module
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), start_method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn", "thread"])
def test_samples_reuse_the_memory_of_earlier_samples(tmp_path, start_method):
    assert faults(tmp_path, start_method) < 10


def test_a_threshold_that_the_user_has_set_applies(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert faults(tmp_path, "fork") > 100
