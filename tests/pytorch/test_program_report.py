"""The line that `python -m gluonloader.torch script.py` prints when the script ends."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.spawn

IMPORTS = """
import time
import torch
from torch.utils.data import DataLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 128
    def __getitem__(self, index):
        time.sleep(0.001)
        return index
"""
READS = f"{IMPORTS}\nfor loader in DataLoader(Slow(), 2), DataLoader(Slow(), 4):\n    list(loader), list(loader)\n"
BUSY = f"{IMPORTS}\nfor batch in DataLoader(torch.zeros(40, 2), 1):\n    time.sleep(0.03)\n"
WORKERS = f"{IMPORTS}\nfor epoch in range(2):\n    list(DataLoader(Slow(), 2, num_workers=2))\n"
KILLED = f"""
import os
{IMPORTS}
class Killed(Slow):
    def __getitem__(self, index):
        if index == 40 and not os.path.exists(__file__ + ".killed"):
            open(__file__ + ".killed", "w").close()
            os.kill(os.getpid(), 9)
        return super().__getitem__(index)

list(DataLoader(Killed(), 2, num_workers=2))
"""


@pytest.fixture
def report(tmp_path):
    """Runs a script with options; returns what it has printed on standard error."""

    def run(script, *options, status=0, **environment):
        path = tmp_path / "script.py"
        path.write_text(script)
        command = [sys.executable, "-m", "gluonloader.torch", *options, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
        assert done.returncode == status, done.stderr
        return done.stderr

    return run


def test_loaders_without_workers_are_counted_and_told_what_helps_below_a_traceback(report):
    traceback, _, line = report(f"{READS}\nraise ValueError('of the script')\n", status=1).partition("gluonloader: ")
    assert traceback.endswith("ValueError: of the script\n")
    assert line.startswith("2 loaders, 192 batches; the script waited for them ")
    assert "; 2 loaders without workers: pass num_workers=" in line
    assert line.count("\n") == 1


def test_there_is_no_advice_where_the_script_is_slower_than_its_loaders(report):
    text = report(BUSY)
    assert text.startswith("gluonloader: 1 loader, 40 batches; ")
    assert text.endswith("% of the time of its loops\n")


def test_each_epoch_of_a_loader_with_workers_counts_for_it(report):
    text = report(WORKERS, "--stats")
    assert text.startswith("gluonloader: 2 loaders, 128 batches; ")
    assert text.count("\nSlow: 2 process workers; 64 batches (128 samples") == 2


def test_a_worker_that_died_is_reported(report):
    assert re.search(r"; 1 worker died, and \d (batch was|batches were) made again", report(KILLED).splitlines()[-1])


@pytest.mark.parametrize("script", ["", f"{IMPORTS}\nDataLoader(Slow())\n"])
def test_a_script_that_reads_no_batch_is_told(report, script):
    expected = "gluonloader: the script has read no batch of a DataLoader of torch.utils.data, so nothing changed\n"
    assert report(script) == expected


def test_it_can_be_turned_off_and_only_one_rank_prints(report):
    assert report(READS, "--quiet") == report(READS, GLUONLOADER_QUIET="1") == report(READS, RANK="1") == ""


@pytest.mark.parametrize("package", ["gluonloader", "gluonloader.torch"])
def test_the_version(package):
    command = [sys.executable, "-m", package, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("gluonloader ")
