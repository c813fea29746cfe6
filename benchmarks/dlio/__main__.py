"""Runs DLIO with gluonloader and with DLIO's own loaders in turn: utilisation, MB per second, processor time.

    python -m benchmarks.dlio --rounds 5

The workloads are those of DLIO's package, with the changes in `WORKLOADS`: smaller files, fewer of them, and formats
that all of the loaders read. So this is no result of MLPerf. DLIO writes the files first, so they are in the memory of
the system if it is large enough; then no disk takes part.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..report import machine

_WORKERS: Final = 2
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
_PLUGIN: Final = {
    "framework": "pytorch",
    "reader.data_loader": "pytorch",
    "reader.data_loader_classname": "benchmarks.dlio.plugin.GluonLoader",
    "reader.data_loader_sampler": "index",
}
LOADERS: Final[dict[str, dict[str, str]]] = {
    "gluonloader": _PLUGIN,
    "DLIO's torch": {"framework": "pytorch", "reader.data_loader": "pytorch"},
    "DLIO's TensorFlow": {"framework": "tensorflow", "reader.data_loader": "tensorflow"},
}


@dataclass
class Results:
    """What each run of a loader has reported.

    Attributes:
        utilisation: in percent, the mean of the epochs.
        mb_per_s: read by the training.
        cpu_s: of all processes.
    """

    utilisation: list[float] = field(default_factory=list)
    mb_per_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    error: str = ""


def settings_of(workload: Workload, folder: Path) -> dict[str, Any]:
    return {
        "workflow.checkpoint": False,
        "dataset.data_folder": folder / "data" / workload.base,
        "reader.read_threads": _WORKERS,
        "train.epochs": _EPOCHS,
        **workload.settings,
    }


def run_dlio(workload: Workload, settings: dict[str, Any], output: Path) -> str:
    """Runs DLIO in a program of its own; returns the end of what it prints if it fails, and "" otherwise."""
    arguments = [f"++workload.{name}={value}" for name, value in settings.items()]
    command = ["-m", "dlio_benchmark.main", f"workload={workload.base}", f"hydra.run.dir={output}", *arguments]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    return (done.stdout + done.stderr)[-2000:] if done.returncode else ""


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(workload: Workload, loader: str, folder: Path, results: Results) -> None:
    """Runs all epochs of a workload with a loader, and adds what was measured."""
    output = Path(tempfile.mkdtemp(dir=folder))
    start = children_s()
    results.error = run_dlio(workload, {**settings_of(workload, folder), **LOADERS[loader]}, output)
    if results.error:
        return
    metric = json.loads((output / "summary.json").read_text())["metric"]
    results.utilisation.append(metric["train_au_mean_percentage"])
    results.mb_per_s.append(metric["train_io_mean_MB_per_second"])
    results.cpu_s.append(children_s() - start)


def table(workload: Workload, results: dict[str, Results]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield f"| loader | AU, {workload.required} % asked for | MB/s | processor time of a run |"
    yield "| --- | ---: | ---: | ---: |"
    for name, result in results.items():
        if result.error:
            yield f"| {name} | failed: {result.error.strip().splitlines()[-1][:200]} | | |"
            continue
        low, high = min(result.utilisation), max(result.utilisation)
        used = f"{statistics.median(result.utilisation):.1f} ({low:.1f} to {high:.1f}) %"
        rates = statistics.median(result.mb_per_s), statistics.median(result.cpu_s)
        yield f"| {name} | {used} | {rates[0]:.0f} | {rates[1]:.1f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"some of {', '.join(WORKLOADS)}; all without names")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine([]))
    versions = (f"{name} {version(name)}" for name in ("dlio_benchmark", "gluonloader", "torch", "tensorflow-cpu"))
    print(", ".join(versions))
    print(f"{_WORKERS} workers, {_EPOCHS} epochs in a run, {arguments.rounds} runs of each loader, in turn")
    with tempfile.TemporaryDirectory() as name:
        for workload_name in arguments.workloads or WORKLOADS:
            compare(workload_name, Path(name), arguments.rounds)


def compare(name: str, folder: Path, rounds: int) -> None:
    """Measures all loaders with a workload, and prints the table."""
    workload = WORKLOADS[name]
    start = time.monotonic()
    files = {**settings_of(workload, folder), **LOADERS["DLIO's torch"]}
    files |= {"workflow.generate_data": True, "workflow.train": False}
    if error := run_dlio(workload, files, folder / "generate"):
        raise SystemExit(error)
    results = {loader: Results() for loader in LOADERS}
    for number in range(rounds):
        order = list(LOADERS) if number % 2 == 0 else list(reversed(LOADERS))
        for loader in order:
            measure(workload, loader, folder, results[loader])
    print(f"\n{name}: {workload.base} with {workload.settings}, {time.monotonic() - start:.0f} s\n")
    print("\n".join(table(workload, results)), flush=True)


if __name__ == "__main__":
    main()
