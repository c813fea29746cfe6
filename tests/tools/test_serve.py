"""`python -m gluonloader serve`: a program that serves until it is interrupted, and continues after a restart."""

import json
import os
import signal
import subprocess
import sys

import pytest

import gluonloader as gl
from gluonloader.__main__ import main

pytestmark = pytest.mark.numpy_only

FACTORY = """
from gluonloader import DataLoader

def make(**options):
    return DataLoader(list(range(40)), 4, shuffle=True, seed=1, **options)
"""


@pytest.fixture
def factory(tmp_path):
    file = tmp_path / "made_here.py"
    file.write_text(FACTORY)
    return f"{file}:make"


class Command:
    def __init__(self, factory, *options):
        self.name = f"command.{os.getpid()}"
        command = [sys.executable, "-m", "gluonloader", "serve", factory, "--name", self.name, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def first_line(self):
        return self.process.stdout.readline()

    def end(self, number):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert err == ""
        assert self.process.returncode == 0
        return out


def expected():
    loader = gl.DataLoader(list(range(40)), 4, shuffle=True, seed=1)
    return [batch.tolist() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(factory, number):
    command = Command(factory, "--with", "num_workers=1")
    first = command.first_line()
    assert first == (
        f"serving {command.name!r} (pid {command.process.pid}); attach with gluonloader.attach({command.name!r})\n"
    )
    with gl.attach(command.name) as loader:
        assert [batch.tolist() for batch in loader] == expected()[:10]
    assert f"(pid {command.process.pid}): 1" in command.end(number)


def test_it_continues_from_its_file(factory, tmp_path):
    file, found = tmp_path / "state.json", []
    for count in (3, 9):
        command = Command(factory, "--state", str(file))
        command.first_line()
        with gl.attach(command.name) as loader:
            iterator = iter(loader)
            while len(found) < count:
                found.append(next(iterator).tolist())
        command.end(signal.SIGTERM)
        assert json.loads(file.read_text())["batch"] == count
    assert found == expected()[:9]


def test_mistakes_are_errors_with_a_cure(factory, capsys):
    handler = signal.getsignal(signal.SIGTERM)
    for options, text in [
        (["--name", "a b"], "must be 1 to 64 ASCII letters"),
        (["--name", "x", "--with", "output='numpy'"], "pass them to attach"),
    ]:
        assert main(["serve", factory, *options]) == 2
        assert text in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is handler
