"""DLIO, the benchmark behind MLPerf Storage: runs it with gluonloader and with DLIO's own loaders in turn.

The workloads are those of DLIO's package, with the changes in `WORKLOADS`: smaller files, fewer of them, and formats
that all of the loaders read. So this is no result of MLPerf. DLIO writes the files first, so they are in the memory of
the system if it is large enough; then no disk takes part. `nox -s dlio` installs what this needs, and runs it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from .harness import Figures, Table, Topic

_EPOCHS: Final = 5


@dataclass(frozen=True)
class Workload:
    """A workload of DLIO, and what is changed in it.

    Attributes:
        base: its name in DLIO's package.
        required: the utilisation that MLPerf Storage asks for, in percent.
        settings: what is changed.
    """

    base: str
    required: int
    settings: dict[str, Any]


WORKLOADS: Final = {
    "unet3d": Workload(
        "unet3d_h100",
        90,
        {
            "dataset.num_files_train": 70,
            "dataset.record_length": 8 << 20,
            "dataset.record_length_stdev": 0,
            "reader.batch_size": 1,
            "train.computation_time": 0.02,
        },
    ),
    "resnet50": Workload(
        "resnet50_v100",
        90,
        {"dataset.num_files_train": 1280, "dataset.num_samples_per_file": 1, "dataset.format": "jpeg"},
    ),
    "cosmoflow": Workload("cosmoflow_h100", 70, {"dataset.num_files_train": 400, "dataset.format": "npz"}),
}
_TORCH: Final = {"framework": "pytorch", "reader.data_loader": "pytorch"}
LOADERS: Final[dict[str, dict[str, str]]] = {
    "gluonloader": {
        **_TORCH,
        "reader.data_loader_classname": "benchmarks.dlio_plugin.GluonLoader",
        "reader.data_loader_sampler": "index",
    },
    "DLIO's torch": _TORCH,
    "DLIO's TensorFlow": {"framework": "tensorflow", "reader.data_loader": "tensorflow"},
}


def run(options: Namespace) -> Iterator[Table]:
    """Yields a table for each workload: utilisation, MB per second and processor time of a run."""
    columns = {"AU": "{:.1f} %".format, "MB/s": "{:.0f}".format, "processor time": "{:.1f} s".format}
    for name in options.names:
        workload = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "workflow.checkpoint": False,
                "dataset.data_folder": f"{folder}/data/{workload.base}",
                "reader.read_threads": options.workers,
                "train.epochs": _EPOCHS,
                **workload.settings,
            }
            files = {**settings, **_TORCH, "workflow.generate_data": True, "workflow.train": False}
            if error := _dlio(workload.base, files, f"{folder}/generate"):
                raise SystemExit(error)
            rows = {
                loader: partial(_measured, workload.base, {**settings, **of_loader}, folder)
                for loader, of_loader in LOADERS.items()
            }
            title = f"{name}: {workload.base} with {workload.settings}; MLPerf asks for an AU of {workload.required} %"
            yield Table(title, rows, columns)


def _measured(workload: str, settings: Mapping[str, Any], folder: str) -> Figures:
    """Runs all epochs of a workload; no figures if DLIO fails."""
    output = tempfile.mkdtemp(dir=folder)
    start = _children_s()
    if error := _dlio(workload, settings, output):
        print(error, file=sys.stderr)
        return {}
    metric = json.loads(Path(output, "summary.json").read_text())["metric"]
    return {
        "AU": metric["train_au_mean_percentage"],
        "MB/s": metric["train_io_mean_MB_per_second"],
        "processor time": _children_s() - start,
    }


def _dlio(workload: str, settings: Mapping[str, Any], output: str) -> str:
    """Runs DLIO in a new program; returns the end of what it prints if it fails, and "" otherwise."""
    arguments = [f"++workload.{name}={value}" for name, value in settings.items()]
    command = ["-m", "dlio_benchmark.main", f"workload={workload}", f"hydra.run.dir={output}", *arguments]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    return (done.stdout + done.stderr)[-2000:] if done.returncode else ""


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


TOPIC: Final = Topic(run, rounds=5, names=WORKLOADS, packages=("dlio_benchmark", "torch", "tensorflow-cpu"))
