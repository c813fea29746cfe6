"""Scripts in the forms of published code, with MXNet's loader and then unchanged with ours: all batches are equal.

The scripts know nothing of gluonloader. `scripts/record.py` writes their batches to a file; here two files are compared.
"""

import os
import pickle
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from . import sides  # noqa: F401 - skips this file if MXNet cannot be imported

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
WAYS = {"theirs": [], "ours": ["-m", "gluonloader.mxnet"]}

pytestmark = pytest.mark.spawn


@pytest.fixture
def environment(tmp_path):
    """That of the programs: gluonloader can be imported, torch cannot, since GluonCV refuses to be imported beside torch 2."""
    (tmp_path / "torch.py").write_text("raise ImportError('hidden from GluonCV')\n")
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", "OMP_NUM_THREADS": "1"}


def run(environment, tmp_path, script, *arguments):
    """What the two programs did, which run at the same time: (exit status, stdout, stderr, records) by way."""
    programs = {}
    for way, module in WAYS.items():
        command = [sys.executable, *module, SCRIPTS / f"{script}.py", *arguments]
        programs[way] = subprocess.Popen(
            command,
            env={**environment, "RECORD": str(tmp_path / way)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    done = {}
    for way, program in programs.items():
        stdout, stderr = program.communicate(timeout=50)
        assert session(program.pid) == [], "processes are left"
        done[way] = program.returncode, stdout, stderr, list(records(tmp_path / way))
    return done


def session(number):
    """The processes of a session that are still there."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == number:
            found.append(status.parent.name)
    return found


def records(path):
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def batches(records):
    return [(record["kind"], record["name"], record["what"]) for record in records if record["kind"] != "loader"]


def shared_files_of(records):
    """Files of shared memory that a child of the program made and left behind; their names begin with its number."""
    children = {pid for record in records for pid in record["children"]}
    return [name for pid in children for name in Path("/dev/shm").glob(f"mx_{pid:x}_*")]


def complaints(stderr):
    """The lines of stderr without what gluonloader logs at level INFO."""
    return [line for line in stderr.splitlines() if not re.match(r"(INFO:)?gluonloader", line)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("script", NEEDS)
def test_a_script_reads_the_same_batches(environment, tmp_path, script, num_workers):
    if find_spec(NEEDS[script]) is None:
        pytest.skip(f"needs {NEEDS[script]}")
    done = run(environment, tmp_path, script, "--num-workers", str(num_workers))
    theirs, ours = done["theirs"], done["ours"]
    assert theirs[0] == 0, theirs[2]
    assert ours[0] == 0, ours[2]

    assert batches(ours[3]) == batches(theirs[3])
    assert ours[1] == theirs[1]
    assert complaints(ours[2]) == complaints(theirs[2])

    # Each loader is of the package that was asked for, and equally long.
    for their, our in zip(*[[r for r in side[3] if r["kind"] == "loader"] for side in (theirs, ours)]):
        assert (our["name"], our["what"]["length"]) == (their["name"], their["what"]["length"])
        assert "gluonloader" in our["what"]["packages"]
        assert "gluonloader" not in their["what"]["packages"]
    if num_workers:
        assert any(record["children"] for record in ours[3])
    assert shared_files_of(ours[3]) == []


def test_the_scripts_are_all_run():
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*NEEDS, "record"}
