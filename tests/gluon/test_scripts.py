"""Scripts that use Gluon as published code does read the same batches from MXNet's loader and from gluonloader's.

The scripts do not import gluonloader. Each script runs twice, unchanged: with `python`, and with
`python -m gluonloader.mxnet`. `scripts/record.py` writes the batches to a file, and the test compares the two files.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from .sides import needs_old_numpy

SCRIPTS = Path(__file__).parent / "scripts"
NEEDS = {
    "train_mnist": "mxnet",
    "train_forecast": "mxnet",
    "train_ssd": "mxnet",
    "train_yolo": "gluoncv",
    "train_transformer": "gluonnlp",
    "train_yolo_multiscale": "gluoncv",
    "fit_estimator": "mxnet",
    "d2l_softmax": "mxnet",
}
# On a machine without a GPU, gluonloader warns that it ignores `pin_memory`; MXNet's loader does not warn.
KNOWN_WARNING = "ignore:pin_memory=True:RuntimeWarning"

pytestmark = pytest.mark.spawn


@pytest.fixture
def environment(tmp_path):
    """The environment variables of the programs. They hide torch, since GluonCV cannot be imported if torch 2 can."""
    (tmp_path / "torch.py").write_text("raise ImportError('hidden from GluonCV')\n")
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", "PYTHONWARNINGS": KNOWN_WARNING}


@dataclass
class Done:
    """The results of a program that has ended."""

    status: int
    stdout: str
    stderr: str
    records: list


def run(environment, record, command, seconds):
    """Runs a program, and checks that no process of its session is left."""
    program = subprocess.Popen(
        command,
        cwd=record.parent,
        env={**environment, "RECORD": str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = program.communicate(timeout=seconds)
        deadline = time.monotonic() + 5  # for workers, which have to notice that the program was killed
        while session(program.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert session(program.pid) == [], "the program left processes running"
    finally:
        if session(program.pid):
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
    return Done(program.returncode, stdout, stderr, list(records(record)))


def run_theirs(environment, record, command):
    """Runs a program with MXNet's loader; it may hang at its end, so the program is run up to three times."""
    for _ in range(2):
        try:
            return run(environment, record, command, 15)
        except subprocess.TimeoutExpired:
            pass
    return run(environment, record, command, 20)


def session(number):
    """The processes of a session that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = status.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of_session) == number and state not in "ZX":
            found.append(status.parent.name)
    return found


def records(path):
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def batches(done):
    return [(record["kind"], record["name"], record["what"]) for record in done.records if record["kind"] != "loader"]


def loaders(done):
    return [(record["name"], record["what"]) for record in done.records if record["kind"] == "loader"]


def shared_files_of(done):
    """Files in /dev/shm that a child process of the program made and did not delete; their names contain its pid."""
    children = {pid for record in done.records for pid in record["children"]}
    return [name for pid in children for name in Path("/dev/shm").glob(f"mx_{pid:x}_*")]


@needs_old_numpy
@pytest.mark.parametrize(
    ("script", "num_workers"),
    [*((script, 2) for script in NEEDS), ("train_ssd", 0), ("train_transformer", 0), ("fit_estimator", 0)],
)
def test_a_script_reads_the_same_batches(environment, tmp_path, script, num_workers):
    if find_spec(NEEDS[script]) is None:
        pytest.skip(f"needs {NEEDS[script]}")
    command = [SCRIPTS / f"{script}.py", "--num-workers", str(num_workers)]
    ours = run(environment, tmp_path / "ours", [sys.executable, "-m", "gluonloader.mxnet", "--quiet", *command], 50)
    theirs = run_theirs(environment, tmp_path / "theirs", [sys.executable, *command])
    assert theirs.status == 0, theirs.stderr
    assert ours.status == 0, ours.stderr
    assert batches(ours) == batches(theirs)
    assert ours.stdout == theirs.stdout
    assert ours.stderr == theirs.stderr

    # Each loader is a loader of the right package, and has the same length as the other loader.
    for (name, their), (same_name, our) in zip(loaders(theirs), loaders(ours), strict=True):
        assert (name, their["length"]) == (same_name, our["length"])
        assert "gluonloader" in our["packages"]
        assert "gluonloader" not in their["packages"]
    assert any(record["children"] for record in ours.records) == (num_workers > 0)
    assert shared_files_of(ours) == []


def test_all_scripts_are_run():
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*NEEDS, "record"}


LEAVES_AN_EPOCH = """
import os, signal, sys
import record
from mxnet import gluon, nd

data = gluon.data.ArrayDataset(nd.arange(4000).reshape((100, 40)), nd.arange(100))
loader = gluon.data.DataLoader(data, 2, num_workers=2)
for number, batch in enumerate(loader):
    record.batch("all", batch)
    if number == 3:
        {end}
"""
ENDS = {
    "break": ("break", 0),
    "exit": ("sys.exit(5)", 5),
    "error": ("raise RuntimeError('of the script')", 1),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    "group": ("os.killpg(0, signal.SIGINT)", -signal.SIGINT),
    "terminate": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_script_that_ends_within_an_epoch_leaves_no_processes_and_no_files(environment, tmp_path, end):
    statement, status = ENDS[end]
    script = tmp_path / "train.py"
    script.write_text(LEAVES_AN_EPOCH.format(end=statement))
    environment["PYTHONPATH"] += f":{SCRIPTS}"
    done = run(environment, tmp_path / "record", [sys.executable, "-m", "gluonloader.mxnet", "--quiet", script], 50)
    assert (done.status, len(done.records)) == (status, 4), done.stderr
    assert len(done.records[-1]["children"]) >= 2
    assert shared_files_of(done) == []
    shown = {"error": "RuntimeError: of the script", "interrupt": "KeyboardInterrupt", "group": "KeyboardInterrupt"}
    assert done.stderr.splitlines()[-1:] == [shown[end]] if end in shown else done.stderr == ""
    assert done.stderr.count("Traceback") == (end in shown)
