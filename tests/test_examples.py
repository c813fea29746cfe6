"""Each example runs as a user would run it, and reaches the result that it promises."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spawn

ROOT = Path(__file__).parent.parent
# The import of MXNet uses names that NumPy and Python have deprecated.
WARNINGS = {"mxnet": ["-W", "ignore::DeprecationWarning"]}


def run(example, *arguments, warnings=()):
    done = subprocess.run(
        [sys.executable, "-W", "error", *warnings, ROOT / "examples" / f"{example}.py", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy(example, *arguments, warnings=()):
    printed = run(example, *arguments, warnings=warnings)
    return float(re.search(r"^test accuracy: (\S+)$", printed, re.MULTILINE)[1])


@pytest.fixture(autouse=True)
def _needs_the_examples_extra():
    pytest.importorskip("sklearn")
    pytest.importorskip("tqdm")


WAYS = (["--workers", "2"], ["--workers", "1", "--start-method", "spawn"])


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_the_numpy_network_learns_the_digits(way):
    assert accuracy("train_digits", "--epochs", "20", *way) > 0.95


@pytest.mark.parametrize(
    ("example", "framework"), [("gluon_digits", "mxnet"), ("torch_digits", "torch"), ("jax_digits", "jax")]
)
def test_the_network_of_each_framework_learns_the_digits(example, framework):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    assert accuracy(example, warnings=WARNINGS.get(framework, ())) > 0.95


def test_two_processes_learn_the_digits_together():
    pytest.importorskip("torch")
    printed = run("ddp_digits", warnings=["-W", "ignore"])  # of torchrun
    assert len(re.findall("rank [01] of 2 has read 21570 samples", printed)) == 2
    assert float(re.search(r"^test accuracy: (\S+)$", printed, re.MULTILINE)[1]) > 0.95


def test_a_killed_run_resumes_and_ends_with_identical_weights():
    printed = run("resume")
    assert "killed by signal 9" in printed
    assert 'resumes at {"epoch": 1, "batch": ' in printed
    assert printed.splitlines()[-1] == "identical weights"


def test_a_killed_pretraining_resumes_on_other_ranks_with_identical_losses():
    printed = run("pretrain")
    assert printed.count("killed by signal 9") == 2
    assert "resumes at step 30" in printed
    assert "resumes at step 40" in printed
    assert printed.splitlines()[-1] == "identical losses"


@pytest.mark.parametrize("framework", ["torch", "mxnet"])
def test_the_network_of_each_framework_learns_the_images(framework):
    for needed in (framework, "cv2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"needs {needed}")
    arguments = ["--gluon"] if framework == "mxnet" else []
    assert accuracy("images", *arguments, warnings=WARNINGS.get(framework, ())) > 0.9


def test_the_parquet_example_reads_the_table():
    pytest.importorskip("pyarrow")
    assert "rows" in run("parquet_bulk", "--rows", "100000")


def test_many_nodes_give_every_image_once():
    pytest.importorskip("ray")
    printed = run("many_nodes", warnings=("-W", "ignore"))  # of Ray
    assert "75 batches, in order: True\nevery image once: True\n" in printed


def test_the_slow_source_is_read_before_and_after_concurrency():
    printed = run("slow_source", "--samples", "96")
    assert len(re.findall(r" samples per second$", printed, re.MULTILINE)) == 3
    assert printed.splitlines()[-1] == "identical samples"


def test_three_experiments_read_the_batches_of_one_loader():
    printed = run("experiments")
    shares = [float(share) for share in re.findall(r"test accuracy (\S+)$", printed, re.MULTILINE)]
    assert len(shares) == 3
    assert max(shares) > 0.95
    read, needed, made = map(int, re.findall(r"(\d+) (?:batches )?were", printed))
    assert read == 3 * needed
    assert needed <= made <= needed + 5


def test_this_file_runs_every_example():
    written = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert written == {
        "digits", "train_digits", "gluon_digits", "torch_digits", "jax_digits", "resume", "parquet_bulk",
        "pretrain", "images", "ddp_digits", "slow_source", "many_nodes", "experiments",
    }  # fmt: skip
