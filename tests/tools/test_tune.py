"""`python -m gluonloader tune`."""

import json
import os
import pty
import subprocess
import sys

import pytest
from conftest import load_or_skip

from gluonloader.__main__ import main

TRAIN = """
import numpy as np
from gluonloader import DataLoader

print("imported")

def make(**options):
    print("made")
    return DataLoader(np.zeros((1000, 16), np.float32), 10, **options)

def refuse():
    pass
"""


@pytest.fixture
def train(tmp_path):
    """A file with factories; its name differs in each test, since modules are imported once."""
    path = tmp_path / f"train_{os.path.basename(tmp_path)}.py"
    path.write_text(TRAIN)
    return path


def printed(capsys, *words):
    """What the command prints to its two outputs, with a time in which a trial yields batches if others are busy."""
    for seconds in (2, 8, 32):
        ended = main(["tune", *words, "--seconds", str(seconds)])
        out, err = capsys.readouterr()
        if ended == 0:
            return out, err
        assert "no result after" in err
    raise AssertionError(err)


def test_it_prints_a_table_and_a_line(train, capsys):
    out, err = printed(capsys, f"{train}:make")
    assert out.startswith("   samples/s")
    (best,) = (line for line in out.splitlines() if line.startswith("Best, found in "))
    assert "num_workers=" in best
    assert err in ("imported\n", "")  # a module is imported once


def test_json_and_plot(train, tmp_path, capsys):
    load_or_skip("matplotlib")
    plot = tmp_path / "tuning.png"
    options = ["--step", "0.001", "--busy", "--memory", "2MB", "--json", "--plot", str(plot)]
    found = json.loads(printed(capsys, f"{train}:make", *options)[0])
    assert eval(f"dict({found['line']})") == found["best"]["arguments"]
    assert found["best"] in found["trials"]
    assert found["best"]["samples_per_s"] <= 10 / 0.001
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("factory", "options", "text"),
    [
        ("refuse", [], "refuse: it does not accept the argument executor"),
        ("make", ["--memory", "much"], "memory_limit='much': "),
        ("make", ["--seconds", "0.1"], "budget_s=0.1: must be a number of seconds >= 1"),
    ],
)
def test_errors(train, capsys, factory, options, text):
    assert main(["tune", f"{train}:{factory}", "--seconds", "60", *options]) == 2
    assert text in capsys.readouterr().err


def test_a_plot_needs_matplotlib(train, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["tune", f"{train}:make", "--plot", "tuning.png"]) == 2
    assert 'matplotlib is not installed; run pip install "gluonloader[plot]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"), [("tuning.txt", "the file must end with .png"), ("absent/tuning.png", "there is no folder ")]
)
def test_a_wrong_plot_is_an_error_before_the_measurements(train, tmp_path, capsys, name, text):
    load_or_skip("matplotlib")
    assert main(["tune", f"{train}:make", "--plot", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err


@pytest.mark.spawn
def test_progress_on_a_terminal(train):
    terminal, slave = pty.openpty()
    command = [sys.executable, "-m", "gluonloader", "tune", f"{train}:make", "--seconds", "6"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, timeout=60, check=True, text=True)
    os.close(slave)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "of 6 seconds" in shown
    assert "trials" in shown
    assert "Best" in done.stdout
