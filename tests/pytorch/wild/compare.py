"""Runs the programs of this folder with torch's loader and, unedited, under `python -m gluonloader.torch`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGES = {
    "geometric": "torch_geometric",
    "lhotse_cuts": "lhotse",
    "lit_data": "litdata",
    "metric_learning": "pytorch-metric-learning",
    "mm_engine": "mmengine",
    "monai_images": "monai",
    "mosaic_streaming": "mosaicml-streaming",
    "skorch_fit": "skorch",
    "torchio_grid": "torchio",
    "torchio_queue": "torchio",
    "train_accelerate": "accelerate",
    "train_lightning": "lightning",
    "train_transformers": "transformers",
    "web_dataset": "webdataset",
}


def run(name: str, workers: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; its standard output has a line for each batch or result."""
    stubs = str(FOLDER / "stubs") if name == "mosaic_streaming" else ""
    folders = [str(FOLDER.parents[2]), stubs, os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *command, str(FOLDER / f"{name}.py"), "--workers", str(workers)],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            "HF_HUB_OFFLINE": "1",
        },
    )


def digests(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The digests that a program has printed, in their order."""
    return [line for line in done.stdout.splitlines() if line.startswith("batch ")]


def result(name: str, workers: int) -> str:
    """What the two runs of a program have in common, as text."""
    theirs, ours = run(name, workers), run(name, workers, "-m", "gluonloader.torch")
    for side, done in (("torch", theirs), ("gluonloader", ours)):
        if done.returncode:
            return f"{side} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    expected, found = digests(theirs), digests(ours)
    equal = sum(one == other for one, other in zip(expected, found, strict=False))
    if expected == found:
        return f"all {len(expected)} equal"
    return f"{equal} of {len(expected)} equal ({len(found)} found)"
