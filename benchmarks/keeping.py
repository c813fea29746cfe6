"""What a program pays that keeps a part of each batch: memory, as a multiple of the bytes that it keeps.

A batch is a dict of 32 images (3 x 128 x 128 float32, 6.3 MB), masks (64 x 64 uint8, 131 kB) and labels (256 bytes).
Each figure comes from a separate program. It reads an epoch and keeps nothing, then another epoch and keeps one part of
each batch. The figure says by how much the memory of the program and its workers (their proportional set sizes) has
grown, divided by the bytes of the arrays that are kept; for labels, which are small, it is the growth in MB.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import math
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np

import gluonloader.mxnet

from .datasets import Recycled
from .harness import Figures, Measure, Table, Topic
from .processes import memory_of
from .programs import in_new_program

_ROWS: Final = 32
_IMAGE: Final = (3, 128, 128)
_MASK: Final = (64, 64)

Batch = Mapping[str, Any]

# What is kept of a batch, and how many bytes its arrays have. A slice keeps the array that it is a part of.
KEPT: Final[dict[str, tuple[Callable[[Batch], Any], float]]] = {
    "labels, MB": (lambda batch: batch["label"], 0),
    "masks": (lambda batch: batch["mask"], _ROWS * math.prod(_MASK)),
    "first images": (lambda batch: batch["image"][:1], 4 * _ROWS * math.prod(_IMAGE)),
    "whole batches": (dict, _ROWS * (4 * math.prod(_IMAGE) + math.prod(_MASK) + 8)),
}


def samples(length: int, tensors: bool) -> Recycled:
    """Returns a dataset of random bytes; with `tensors` the samples are tensors of torch."""
    rng = np.random.default_rng(0)
    sample: dict[str, Any] = {
        "image": rng.random(_IMAGE, np.float32),
        "mask": rng.integers(0, 2, _MASK, np.uint8),
        "label": np.int64(1),
    }
    if tensors:
        torch = importlib.import_module("torch")
        sample = {name: torch.as_tensor(value) for name, value in sample.items()}
    return Recycled([sample], length)


@dataclass(frozen=True)
class Kind:
    """A loader: the module that it needs, its arguments, and the module that has it."""

    needs: str
    arguments: Mapping[str, Any]
    module: str = "gluonloader"

    def open(self, length: int) -> Iterable[Batch]:
        """Returns a loader of this many samples."""
        dataset = samples(length, tensors=self.module != "gluonloader")
        loader: Iterable[Batch] = importlib.import_module(self.module).DataLoader(dataset, _ROWS, **self.arguments)
        return loader


LOADERS: Final = {
    "processes": Kind("numpy", {"num_workers": 2}),
    "processes, tensors": Kind("torch", {"num_workers": 2, "output": "torch"}),
    "processes, NDArrays": Kind("mxnet", {"num_workers": 2, "output": "mxnet"}),
    "processes, memory_limit": Kind("numpy", {"num_workers": 2, "memory_limit": "150MB"}),
    "Ray": Kind("ray", {"num_workers": 2, "executor": "ray"}),
    "threads": Kind("numpy", {"num_workers": 2, "executor": "thread"}),
    "no workers, tensors": Kind("torch", {"output": "torch"}),
    "gluonloader.torch": Kind("torch", {"num_workers": 2}, "gluonloader.torch"),
    "torch": Kind("torch", {"num_workers": 2}, "torch.utils.data"),
}


def run(options: Namespace) -> Iterator[Table]:
    """Yields the table."""
    rows: dict[str, Measure | str] = {}
    for name in options.names:
        absent = importlib.util.find_spec(LOADERS[name].needs) is None
        rows[name] = f"{LOADERS[name].needs} is not installed" if absent else partial(_row, name, options.batches)
    yield Table(f"Parts of {options.batches} batches are kept", rows, dict.fromkeys(KEPT, "{:.1f}".format))


def _row(loader: str, batches: int) -> Figures:
    return {kept: in_new_program(_grown, loader, kept, batches) for kept in KEPT}


def _grown(name: str, kept: str, batches: int) -> float:
    """Reads two epochs, the second one without its last batch, after which workers may end."""
    warnings.simplefilter("ignore", RuntimeWarning)  # batches become copies under a memory_limit
    if LOADERS[name].needs == "mxnet":
        gluonloader.mxnet.patch_numpy()
    keep, nbytes = KEPT[kept]
    loader = LOADERS[name].open((batches + 2) * _ROWS)
    for batch in loader:
        _use(batch)
    iterator = iter(loader)
    _use(next(iterator))
    before, result = _memory(), []
    for batch in islice(iterator, batches):
        _use(batch)
        result.append(keep(batch))
    del batch
    taken = _memory() - before
    if hasattr(loader, "close"):
        loader.close()
    return taken / (nbytes * len(result) or 1e6)


def _use(batch: Batch) -> None:
    """Reads all pages of a batch, since memory counts only in processes that have read or written it."""
    for array in batch.values():
        numbers: Any = array.asnumpy() if hasattr(array, "asnumpy") else np.asarray(array)
        numbers.reshape(-1).view(np.uint8)[::4096].max()


def _memory() -> int:
    gc.collect()
    return memory_of("Pss_Anon", "Pss_File", "Pss_Shmem")


TOPIC: Final = Topic(
    run,
    rounds=1,
    names=LOADERS,
    options={"batches": (500, "number of batches of which a part is kept")},
    packages=("torch", "mxnet", "ray"),
)
