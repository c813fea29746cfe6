"""`python -m gluonloader doctor` as users run it. For each of five bad machines and datasets, its cure is followed.

One program runs the doctor several times, since most of the time of a command is the start of its interpreter.
"""

import contextlib
import importlib.util
import json
import os
import pty
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gluonloader.__main__ import main

pytestmark = pytest.mark.spawn

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
SECONDS = ["--seconds", "240"]  # on a busy machine workers start slowly
FACTORY = """
import numpy as np
from gluonloader import DataLoader
{before}

class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return np.float32({sample})

def make(**options):
    return DataLoader(Numbers(), 4, **{{**{defaults}, **options}})
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(before="", sample="index", defaults={"num_workers": 2}, name="pipeline.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(FACTORY.format(before=before, sample=sample, defaults=defaults))

    return write


def command(*arguments):
    return [sys.executable, "-W", "ignore", "-m", "gluonloader", "doctor", *arguments]


# Reads the commands of a shell that come before the doctor, its environment, its limit of descriptors, its arguments.
DOCTORS = """
import io, json, os, resource, subprocess, sys
from contextlib import redirect_stdout
from gluonloader.__main__ import main

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for line in sys.stdin:
    shell, environment, descriptors, arguments = json.loads(line)
    subprocess.run(shell, shell=True, check=True)
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors or hard, hard))
    with redirect_stdout(io.StringIO()) as out:
        status = main(["doctor", *arguments, "--json"])
    print(json.dumps([status, json.loads(out.getvalue())["findings"]]), flush=True)
"""


class Doctors:
    """A program that runs the doctor each time that this object is called."""

    def __init__(self, program):
        self._program = program

    def __call__(self, *arguments, shell="true", environment={}, descriptors=None):
        """The exit status, and the first finding of each name."""
        self._program.stdin.write(json.dumps([shell, environment, descriptors, arguments]) + "\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, "the program has ended; its output is above"
        status, findings = json.loads(answer)
        return status, {finding["name"]: finding for finding in reversed(findings)}


@contextlib.contextmanager
def doctors(*before):
    """Starts the program; `before` is a command that runs it."""
    line = [*before, sys.executable, "-W", "ignore", "-c", DOCTORS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(line, text=True, env=ENVIRONMENT, **pipes) as program:
        limit = threading.Timer(600, program.kill)
        limit.start()
        try:
            yield Doctors(program)
            program.stdin.close()
            assert program.wait() == 0
        finally:
            limit.cancel()


# -- the five cases ----------------------------------------------------------------------------------------------------

ALONE = ["unshare", "-rm"]  # in a namespace of its own for mounts


def can_mount():
    try:
        line = [*ALONE, "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm"]
        return subprocess.run(line, capture_output=True).returncode == 0
    except OSError:
        return False


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs the right to mount in a namespace")


@needs_mounts
def test_a_small_shared_memory_folder_and_its_cure(write):
    with doctors(*ALONE) as doctor:
        status, findings = doctor(shell="mount -t tmpfs -o size=64m tmpfs /dev/shm")
        finding = findings["/dev/shm"]
        assert (status, finding["level"]) == (0, "note")
        assert finding["text"].startswith("64 MB, 64 MB free: enough for gluonloader")
        cure = finding["cure"].partition("as root: ")[2]
        assert cure == "mount -o remount,size=2G /dev/shm"
        status, findings = doctor(shell=cure)
        assert (status, findings["/dev/shm"]["level"]) == (0, "ok")
        # What the finding says: the size does not matter for gluonloader.
        write(sample="np.zeros(1 << 19)")
        status, findings = doctor("pipeline.py:make", *SECONDS, shell="mount -o remount,size=1m /dev/shm")
        assert (status, findings["batches"]["level"]) == (0, "ok"), findings
        assert "8 MB each" in findings["memory"]["text"]


@needs_mounts
def test_a_quota_of_one_core_and_its_cure(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    (tmp_path / "cpu").mkdir()
    quota = tmp_path / "cpu.max", tmp_path / "cpu" / "cpu.max"  # as in version 2 and 1 of cgroups
    for file in quota:
        file.write_text("100000 100000\n")
    with doctors(*ALONE) as doctor:
        status, findings = doctor(shell=f"mount --bind {tmp_path} /sys/fs/cgroup")
        finding = findings["cores"]
        assert (status, finding["level"]) == (0, "warning")
        assert finding["text"].startswith("a CPU quota allows 1 core")
        cure = finding["cure"].partition("; or ")[0]
        assert cure == "export OMP_NUM_THREADS=1"
        status, findings = doctor(environment={"OMP_NUM_THREADS": "1"})
        assert (status, findings["cores"]["level"]) == (0, "note")
        assert "workers and the training share it" in findings["cores"]["text"]
        for file in quota:
            file.write_text("max 100000\n")
        status, findings = doctor()
        assert (status, findings["cores"]["level"]) == (0, "ok")


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096, reason="needs a hard limit of 4,096")
def test_64_descriptors_and_their_cure(write):
    """With 16 workers the loader cannot start."""
    with doctors() as doctor:
        for workers, status in ((2, 0), (16, 1)):
            name = f"with_{workers}"
            write(defaults={"num_workers": workers}, name=f"{name}.py")
            found, findings = doctor(f"{name}.py:make", *SECONDS, descriptors=64)
            assert (found, findings["descriptors"]["level"]) == (status, "warning"), findings
            if status:
                assert findings["loader"]["level"] == "problem"
                assert "Too many open files" in findings["loader"]["text"]
                assert re.match("ulimit -n 1024, or ", findings["loader"]["cure"])
            enough = int(re.match(r"ulimit -n (\d+)", findings["descriptors"]["cure"])[1])
            found, findings = doctor(f"{name}.py:make", *SECONDS, descriptors=enough)
            levels = findings["descriptors"]["level"], findings["loader"]["level"]
            assert (found, *levels) == (0, "ok", "ok"), findings


@pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="needs OpenCV")
def test_threads_of_opencv_before_a_fork_and_their_cures(write):
    blur = "import cv2\ncv2.setNumThreads(4)\ncv2.GaussianBlur(np.zeros((400, 400, 3), np.uint8), (9, 9), 2)"
    write(before=blur)
    write(before=blur, defaults={"num_workers": 2, "start_method": "forkserver"}, name="other.py")
    with doctors() as doctor:
        status, findings = doctor("pipeline.py:make", *SECONDS)
        finding = findings["threads"]
        assert (status, finding["level"]) == (0, "warning")
        assert finding["text"].startswith("OpenCV has threads, which forked workers do not have")
        call = re.match(r"call (\S+\(1\)) in the main program", finding["cure"])[1]
        assert re.search(r"start_method='(forkserver)'", finding["cure"])
        status, findings = doctor("other.py:make", *SECONDS)
        assert (status, findings["threads"]["level"]) == (0, "note")
    write(before=f"{blur}\n{call}", name="cured.py")
    with doctors() as doctor:  # a program that has no threads yet
        status, findings = doctor("cured.py:make", *SECONDS)
        assert (status, findings["threads"]["level"]) == (0, "ok"), findings["threads"]


@pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="needs OpenCV")
def test_opencv_that_hangs_in_workers_is_a_problem(write):
    """`cv2.setNumThreads(1)` in a forked worker waits for threads that exist only in the main program, or crashes."""
    blur = "import cv2\ncv2.setNumThreads(8)\ncv2.GaussianBlur(np.zeros((400, 400, 3), np.uint8), (9, 9), 2)"
    write(before=blur, sample="cv2.setNumThreads(1) or index", defaults={"num_workers": 2, "start_method": "fork"})
    with doctors() as doctor:
        status, findings = doctor("pipeline.py:make", "--seconds", "6")
    assert findings["threads"]["level"] == "warning"
    if "busy cores" not in findings:  # with them, the doctor does not know why no batch arrived
        assert (status, findings["batches"]["level"]) == (1, "problem")


def test_a_dataset_that_does_not_pickle_with_spawn_and_the_cures(write):
    """The cured one is in another folder, in a file whose name is no identifier."""
    spawn = {"num_workers": 2, "start_method": "spawn"}
    write(before="function = None", sample="index + self.add(1)", defaults=spawn)
    text = Path("pipeline.py").read_text()
    lam = "class Numbers:\n    def __init__(self):\n        self.add = {}\n"
    Path("pipeline.py").write_text(text.replace("class Numbers:\n", lam.format("lambda x: x + 1")))
    Path("forked.py").write_text(Path("pipeline.py").read_text().replace("'spawn'", "'fork'"))
    top_level = "def add(x):\n    return x + 1\n\n"
    Path("folder").mkdir()
    Path("folder/pipe-line.py").write_text(text.replace("class Numbers:\n", top_level + lam.format("add")))
    with doctors() as doctor:
        status, findings = doctor("pipeline.py:make", *SECONDS)
        finding = findings["pickle"]
        assert (status, finding["level"]) == (1, "problem")
        assert finding["text"].startswith("start_method='spawn' has to pickle dataset.add: Can't ")
        cure = "define its functions and classes at the top level of a module, or use start_method='fork'"
        assert finding["cure"] == cure
        status, findings = doctor("folder/pipe-line.py:make", *SECONDS)
        assert (status, findings["pickle"]["level"], findings["batches"]["level"]) == (0, "ok", "ok"), findings
        status, findings = doctor("forked.py:make", *SECONDS)
        assert (status, findings["pickle"]["level"], findings["batches"]["level"]) == (0, "note", "ok"), findings


# -- the command -------------------------------------------------------------------------------------------------------


def test_lines_on_stdout_and_a_progress_bar_on_a_terminal(write):
    """The lines are aligned, and cures are below their findings."""
    write(sample="np.random.random()")
    outer, inner = pty.openpty()
    done = subprocess.run(command("pipeline:make", *SECONDS), stdout=subprocess.PIPE, stderr=inner, env=ENVIRONMENT)
    os.close(inner)
    shown = os.read(outer, 65536).decode()
    os.close(outer)
    assert done.returncode == 0
    assert re.search(r"\[#+\] 40 of 40 batches, ", shown)
    *lines, last = done.stdout.decode().splitlines()
    assert re.fullmatch(r"problems: 0, warnings: \d+, notes: \d+", last)
    findings = [line for line in lines if not line.startswith(" ")]
    cures = [line for line in lines if line.startswith(" ")]
    starts = {re.match(r"(ok|note|warning) +\S+( [a-z]\S*)? {2,}", line).end() for line in findings}
    assert len(starts) == 1
    assert {line.index("-> ") for line in cures} == starts
    assert sum(line.startswith("ok") for line in findings) + len(cures) == len(findings)


def test_a_factory_that_ignores_its_arguments_is_named(write, capsys):
    code = "from gluonloader import DataLoader\ndef make(**options): return DataLoader([1], 1)\n"
    Path("ignoring.py").write_text(code)
    assert main(["doctor", "ignoring:make"]) == 2
    assert "called with num_workers=2, it returned a loader with num_workers=0" in capsys.readouterr().err


def test_what_the_users_code_prints_does_not_get_into_the_json(write):
    write(before="import os\nprint('importing')\nos.system('echo from a program')", sample="print('sample') or index")
    done = subprocess.run(command("pipeline:make", "--json", *SECONDS), capture_output=True, text=True, env=ENVIRONMENT)
    facts = json.loads(done.stdout)["dataset"]
    assert (done.returncode, facts["same"]["error"], facts["cost"]["batch_bytes"]) == (0, "", 16)
    assert facts["options"]["num_workers"] == 2
    lines = done.stderr.replace("sample", "sample\n")  # two processes write to one pipe
    assert set(lines.split("\n")) == {"importing", "from a program", "sample", ""}


def test_json_contains_the_facts(capsys):
    assert main(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert found["dataset"] is None
    assert found["machine"]["cpus"] == os.cpu_count()
    assert {finding["level"] for finding in found["findings"]} <= {"ok", "note", "warning"}
    assert set(found["findings"][0]) == {"name", "level", "text", "cure"}


def test_texts_are_broken_to_fit_into_the_terminal():
    outer, inner = pty.openpty()
    done = subprocess.run(command(), stdout=inner, stderr=inner, env={**ENVIRONMENT, "COLUMNS": "70"})
    os.close(inner)
    lines = os.read(outer, 65536).decode().splitlines()
    os.close(outer)
    assert done.returncode in (0, 1)
    assert len(lines) > 10
    assert all(len(line) <= 70 for line in lines if "->" not in line)
