"""The first second: measures new programs up to their first batch, with and without workers.

Each program imports a loader, reads the first batch of 32 rows of (16 float32, int label), and prints the times.
Spawned workers import the program again, which the tables of spawn and forkserver show.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from .harness import Figures, Table, Topic
from .report import time_of

_PROGRAM: Final = """
import time
start = time.perf_counter()
{imports}

class Rows:
    def __init__(self):
        self.rows = {rows}
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return self.rows[index], index

if __name__ == "__main__":
    imported = time.perf_counter()
    next(iter(DataLoader(Rows(), 32, **{arguments})))
    print(imported - start, time.perf_counter() - imported)
"""
_IMPORTS: Final = {
    "gluonloader": ("import numpy as np\nfrom gluonloader import DataLoader", "np.ones((3200, 16), np.float32)"),
    "gluonloader.torch": ("import torch\nfrom gluonloader.torch import DataLoader", "torch.ones(3200, 16)"),
    "torch": ("import torch\nfrom torch.utils.data import DataLoader", "torch.ones(3200, 16)"),
}
_METHODS: Final = ("fork", "forkserver", "spawn")


def run(options: Namespace) -> Iterator[Table]:
    """Yields a table of programs without workers, and one for each start method."""
    columns = dict.fromkeys(("first batch", "imports", "both"), time_of)
    with tempfile.TemporaryDirectory() as folder:
        for method in (None, *_METHODS):
            what = "no workers" if method is None else f"{options.workers} workers, {method}"
            rows = {name: _row(Path(folder), name, options.workers, method) for name in _IMPORTS}
            yield Table(f"A new program: {what}", rows, columns, base="torch")


def _row(folder: Path, name: str, workers: int, method: str | None) -> Any:
    if "torch" in name and importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    imports, rows = _IMPORTS[name]
    context = "start_method" if name == "gluonloader" else "multiprocessing_context"
    arguments = {} if method is None else {"num_workers": workers, context: method}
    path = folder / f"{name}-{method}.py"
    path.write_text(_PROGRAM.format(imports=imports, rows=rows, arguments=arguments))
    return partial(_measure, path)


def _measure(path: Path) -> Figures:
    """Runs the program; the times are in seconds."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, env=environment)
    imports, first = map(float, done.stdout.split())
    return {"first batch": first, "imports": imports, "both": imports + first}


TOPIC: Final = Topic(run, rounds=7, packages=("torch",))
