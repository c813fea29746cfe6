"""Programs that use a library with native threads, and then make loaders as docs/workers.md advises."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from conftest import load_mxnet

pytestmark = [pytest.mark.spawn, pytest.mark.soak]

LOADERS = int(os.environ.get("GLUONLOADER_LOADERS", "2"))

PROGRAM = """
import logging
import sys

import numpy as np

from gluonloader import DataLoader

logging.basicConfig(stream=sys.stdout, format="%(message)s")
{imports}
image = np.zeros((400, 400, 3), np.uint8)


class Dataset:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        {sample}
        return index


def init(info):
    {init}


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        {main}
        with DataLoader(Dataset(), 2, num_workers=2, start_method="{start_method}", worker_init_fn=init) as loader:
            assert np.concatenate(list(loader)).tolist() == list(range(8))
    print("complete")
"""


@dataclass(frozen=True)
class Case:
    """A program: its statements in the main program, in `worker_init_fn` and in the dataset, and its log."""

    name: str
    library: str
    main: str  # before each loader is created
    sample: str
    init: str = "pass"
    start_method: str = "fork"
    warns_of: str | None = None
    imports: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def code(self) -> str:
        return PROGRAM.format(**{**vars(self), "imports": self.imports or f"import {self.library}"})


BLUR = "cv2.GaussianBlur(image, (9, 9), 2)"
PRODUCT = "np.ones((300, 300)) @ np.ones((300, 300))"
TENSOR = "(torch.ones(300, 300) @ torch.ones(300, 300)).exp().sum(); torch.ones(200000).exp()"
NDARRAY = "mx.nd.dot(mx.nd.ones((300, 300)), mx.nd.ones((300, 300))).asnumpy()"
TABLE = 'pa.table({"a": np.arange(100000) % 7}).group_by("a").aggregate([("a", "sum")])'
FRAME = 'polars.DataFrame({"a": np.arange(100000) % 7}).group_by("a").len()'

BLURRED = f"cv2.setNumThreads(4); {BLUR}"

OPENCV = [
    Case("opencv", "cv2", BLURRED, BLUR, warns_of="OpenCV"),
    Case("opencv-0-in-workers", "cv2", BLURRED, BLUR, "cv2.setNumThreads(0)", warns_of="OpenCV"),
    Case("opencv-0-at-first", "cv2", f"cv2.setNumThreads(0); {BLUR}", BLUR, "cv2.setNumThreads(1)"),
    Case("opencv-1-in-main", "cv2", f"{BLURRED}; cv2.setNumThreads(1)", BLUR, "cv2.setNumThreads(3)"),
    Case("opencv-forkserver", "cv2", BLURRED, BLUR, "cv2.setNumThreads(1)", "forkserver"),
]
OTHERS = [
    Case("numpy", "numpy", PRODUCT, PRODUCT),
    Case("pyarrow", "pyarrow", TABLE, TABLE, imports="import pyarrow as pa"),
    Case("pyarrow-limited", "pyarrow", TABLE, TABLE, "pa.set_cpu_count(1)", imports="import pyarrow as pa"),
    Case("torch", "torch", TENSOR, TENSOR),
    Case("polars-in-main", "polars", FRAME, "pass", warns_of="Polars"),
    Case(
        "mxnet",
        "mxnet",
        NDARRAY,
        NDARRAY,
        imports="from gluonloader.mxnet import patch_numpy; patch_numpy(); import mxnet as mx",
    ),
]


@pytest.mark.parametrize("case", [*OPENCV, *OTHERS], ids=str)
def test_loaders_do_not_hang_and_one_warning_names_the_library(case, tmp_path):
    if importlib.util.find_spec(case.library) is None or (case.library == "mxnet" and load_mxnet() is None):
        pytest.skip(f"needs {case.library}")
    program = tmp_path / "program.py"
    program.write_text(case.code)
    command = [sys.executable, "-W", "ignore", str(program), str(LOADERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=max(100, 3 * LOADERS))
    assert done.returncode == 0, done.stderr
    *log, last = done.stdout.splitlines()
    assert last == "complete"
    if case.warns_of is None:
        assert log == []
    else:
        (warning,) = log
        assert warning.startswith(f"{case.warns_of} has threads")
        assert "start_method='forkserver'" in warning
