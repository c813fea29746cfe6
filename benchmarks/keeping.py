"""What a program pays that keeps a part of each batch: memory, as a multiple of the bytes that it keeps.

python -m benchmarks.keeping
python -m benchmarks.keeping --batches 120 process torch

A batch is a dict of 32 images (3 x 128 x 128 float32, 6.3 MB), masks (64 x 64 uint8, 131 kB) and labels (256 bytes).
Each figure comes from a separate program. It reads an epoch and keeps nothing, then another epoch and keeps one part of
each batch. The figure says by how much the memory of the program and its workers (their proportional set sizes) has
grown, divided by the bytes of the arrays that are kept; or in MB, if less than 1 MB is kept. A slice keeps the array
that it is a part of, so this array counts. The time is that of the second epoch.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader

from .processes import memory_of
from .report import machine, time_of

_ROWS: Final = 32
_IMAGE: Final = (3, 128, 128)
_MASK: Final = (64, 64)
_BYTES: Final = {"image": 4 * _ROWS * math.prod(_IMAGE), "mask": _ROWS * math.prod(_MASK), "label": 8 * _ROWS}
_MB: Final = 1e6

Batch = Mapping[str, Any]

# What is kept of a batch, and the arrays of the batch that this keeps.
KEPT: Final[dict[str, tuple[Callable[[Batch], Any], tuple[str, ...]]]] = {
    "label": (lambda batch: batch["label"], ("label",)),
    "label, as NumPy": (lambda batch: _as_numpy(batch["label"]), ("label",)),
    "part of a label": (lambda batch: batch["label"][:4], ("label",)),
    "mask": (lambda batch: batch["mask"], ("mask",)),
    "part of a mask": (lambda batch: batch["mask"][:4], ("mask",)),
    "label and mask": (lambda batch: (batch["label"], batch["mask"]), ("label", "mask")),
    "first image": (lambda batch: batch["image"][:1], ("image",)),
    "whole batch": (dict, ("image", "mask", "label")),
}


@dataclass(frozen=True)
class Figures:
    """What was measured: bytes of the arrays that are kept, by how many bytes memory has grown, seconds per batch."""

    kept: int
    taken: int
    seconds: float


class Samples:
    """Samples of random bytes; with `tensors` they are tensors of torch.

    Args:
        length: number of samples.
        tensors: whether samples are tensors.
    """

    def __init__(self, length: int, tensors: bool) -> None:
        rng = np.random.default_rng(0)
        sample: dict[str, Any] = {
            "image": rng.random(_IMAGE, np.float32),
            "mask": rng.integers(0, 2, _MASK, np.uint8),
            "label": np.int64(1),
        }
        if tensors:
            torch = importlib.import_module("torch")
            sample = {name: torch.as_tensor(value) for name, value in sample.items()}
        self._length, self._sample = length, sample

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._sample


def _as_numpy(array: Any) -> Any:
    return array.asnumpy() if hasattr(array, "asnumpy") else np.asarray(array)


Open = Callable[[int], Iterable[Batch]]  # a loader of so many samples


def _ours(output: str | None = None, **options: Any) -> Open:
    return lambda length: DataLoader(Samples(length, tensors=False), _ROWS, output=output, **options)


def _of_torch(module: str, **options: Any) -> Open:
    def open_loader(length: int) -> Iterable[Batch]:
        loader: Iterable[Batch] = importlib.import_module(module).DataLoader(Samples(length, True), _ROWS, **options)
        return loader

    return open_loader


_PROCESS: Final[dict[str, Any]] = {"num_workers": 2, "executor": "process"}
LOADERS: Final[dict[str, tuple[str, Open]]] = {  # with the module that is needed
    "process": ("numpy", _ours(**_PROCESS)),
    "process, memory_limit": ("numpy", _ours(**_PROCESS, memory_limit="150MB")),
    "process, torch": ("torch", _ours("torch", **_PROCESS)),
    "process, jax": ("jax", _ours("jax", num_workers=2, executor="process", start_method="forkserver")),
    "process, mxnet": ("mxnet", _ours("mxnet", **_PROCESS)),
    "ray": ("ray", _ours(num_workers=2, executor="ray")),
    "thread": ("numpy", _ours(num_workers=2, executor="thread")),
    "thread, mxnet": ("mxnet", _ours("mxnet", num_workers=2, executor="thread")),
    "serial": ("numpy", _ours()),
    "serial, torch": ("torch", _ours("torch")),
    "gluonloader.torch": ("torch", _of_torch("gluonloader.torch", num_workers=2)),
    "gluonloader.torch, persistent": (
        "torch", _of_torch("gluonloader.torch", num_workers=2, persistent_workers=True),
    ),
    "torch": ("torch", _of_torch("torch.utils.data", num_workers=2)),
    "torch, persistent": ("torch", _of_torch("torch.utils.data", num_workers=2, persistent_workers=True)),
}  # fmt: skip


def measure(open_loader: Open, kept: str, batches: int) -> Figures:
    """Reads two epochs in this process, the second one without its last batch, after which workers may end."""
    warnings.simplefilter("ignore", RuntimeWarning)  # batches become copies under a memory_limit
    keep, names = KEPT[kept]
    loader = open_loader((batches + 2) * _ROWS)
    for batch in loader:
        _use(batch)
        keep(batch)  # JAX compiles a slice when it is first used, which takes memory once
    iterator = iter(loader)
    _use(next(iterator))
    before, start, result = _memory(), time.perf_counter(), []
    for batch in islice(iterator, batches):
        _use(batch)
        result.append(keep(batch))
    del batch
    seconds = (time.perf_counter() - start) / batches
    taken = _memory() - before
    if hasattr(loader, "close"):
        loader.close()
    return Figures(sum(_BYTES[name] for name in names) * len(result), taken, seconds)


def _use(batch: Batch) -> None:
    """Reads all pages of a batch, since memory counts only in processes that have read or written it."""
    for array in batch.values():
        _as_numpy(array).reshape(-1).view(np.uint8)[::4096].max()


def _memory() -> int:
    gc.collect()
    return memory_of("Pss_Anon", "Pss_File", "Pss_Shmem")


def main() -> None:
    """Measures each loader and each part in a program of its own, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keeping", description=__doc__.splitlines()[0])
    parser.add_argument("loader", nargs="*", help=f"loaders, of {', '.join(LOADERS)} (default: all)")
    parser.add_argument("--batches", type=int, default=500, help="batches of which a part is kept (default 500)")
    parser.add_argument("--kept", choices=KEPT, help="measure one loader and one part, and print JSON")
    arguments = parser.parse_args()
    if arguments.kept:
        if "mxnet" in arguments.loader[0]:
            importlib.import_module("gluonloader.mxnet").patch_numpy()
        print(json.dumps(asdict(measure(LOADERS[arguments.loader[0]][1], arguments.kept, arguments.batches))))
        return
    print(machine([]))
    print(f"\n{arguments.batches} batches: memory as a multiple of the bytes that are kept, and time per batch\n")
    print(f"{'':32}{''.join(f'{name:>24}' for name in KEPT)}")
    for name in arguments.loader or LOADERS:
        if importlib.util.find_spec(LOADERS[name][0]) is None:
            print(f"{name:32}{LOADERS[name][0]} not installed")
            continue
        cells = [_cell(name, kept, arguments.batches) for kept in KEPT]
        print(f"{name:32}{''.join(f'{cell:>24}' for cell in cells)}", flush=True)


def _cell(loader: str, kept: str, batches: int) -> str:
    command = [sys.executable, "-m", "benchmarks.keeping", loader, "--kept", kept, "--batches", str(batches)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures = Figures(**json.loads(done.stdout.splitlines()[-1]))
    ratio = f"{figures.taken / figures.kept:.2f}" if figures.kept > _MB else f"+{figures.taken / _MB:.1f} MB"
    return f"{ratio} {time_of(figures.seconds)}"


if __name__ == "__main__":
    main()
