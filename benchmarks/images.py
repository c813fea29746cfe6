"""Images: times decoders, and compares `ImagePipeline` with the same calls without a loader.

The topic also counts the page faults of workers that decode images, for each start method.

The limit is a loop that runs in several processes at the same time. It calls simplejpeg and OpenCV directly, and reuses
its memory: it writes all batches into the same array, and sends no data.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader, SimpleDataset, vision
from gluonloader.vision import transforms

from .datasets import AREA, MEAN, SIDE, STD, Photos, opencv, photos
from .harness import Figures, Measure, Table, Topic
from .processes import processes
from .programs import Program, together
from .report import time_of

_BATCH: Final = 32
_CALLS: Final = 15  # timed calls of a decoder
_METHODS: Final = ("fork", "forkserver", "spawn")


def run(options: Namespace) -> Iterator[Table]:
    """Yields the tables of each size."""
    opencv()
    sizes = {"500x375": photos(500, 375, 600)(2048), "2000x1333": photos(2000, 1333, 48)(256)}
    for name, dataset in sizes.items():  # before `speed`, whose freed memory would hide the page faults of workers
        yield faults(name, dataset, options.workers)
    for name, dataset in sizes.items():
        with ExitStack() as stack:
            yield speed(name, dataset, options.workers, stack)
        yield steps(name, dataset.files[0])


def pipeline(dataset: Photos, **options: Any) -> vision.ImagePipeline:
    """Returns an `ImagePipeline` that makes the same images as the bare loop."""
    files = dataset.files
    samples = SimpleDataset([(files[number % len(files)], number) for number in range(len(dataset))])
    return vision.ImagePipeline(samples, SIDE, scale=AREA, flip=0.5, mean=MEAN, std=STD, **options)


# -- page faults -------------------------------------------------------------------------------------------------------


def faults(size: str, dataset: Photos, workers: int) -> Table:
    """Returns a table of the page faults of `ImagePipeline`, and of a dataset that decodes with OpenCV."""
    rows = {"ImagePipeline": partial(_faults, pipeline(dataset), workers), "OpenCV": partial(_faults, dataset, workers)}
    return Table(f"Page faults per image, {size}", rows, dict.fromkeys(_METHODS, "{:.1f}".format), rounds=1)


def _faults(dataset: Any, workers: int) -> Figures:
    """Returns the page faults of the workers per sample in the third epoch, for each start method."""
    found = {}
    for method in _METHODS:
        with DataLoader(dataset, _BATCH, num_workers=workers, executor="process", start_method=method) as loader:
            for _ in range(2):
                _epoch(loader)
            before = _worker_faults()
            _epoch(loader)
            found[method] = (_worker_faults() - before) / len(dataset)
    return found


def _epoch(loader: DataLoader[Any]) -> None:
    for _ in loader:
        pass


def _worker_faults() -> int:
    return sum(spent.faults for pid, spent in processes().items() if pid != os.getpid())


# -- speed of a loader -------------------------------------------------------------------------------------------------


def speed(size: str, dataset: Photos, workers: int, stack: ExitStack) -> Table:
    """Returns a table of the images per second of the loaders and of the limit."""
    batches = len(dataset) // _BATCH
    loops = [
        stack.enter_context(Program(_loop, dataset.files, batches // workers + (number < batches % workers)))
        for number in range(workers)
    ]
    for loop in loops:
        loop.answer()
    plain, scaled = pipeline(dataset), pipeline(dataset, scaled_decode=True)
    options: dict[str, Any] = {"num_workers": workers, "last_batch": "discard", "seed": 0}
    reads: dict[str, Callable[[], object]] = {"bare loop": partial(together, loops)}
    for name, images, executor in (
        ("processes", plain, "process"),
        ("threads", plain, "thread"),
        ("processes, scaled_decode", scaled, "process"),
    ):
        loader: DataLoader[Any] = DataLoader(images, _BATCH, executor=executor, **options)  # type: ignore[arg-type]
        reads[name] = partial(_epoch, stack.enter_context(loader))
    rows = {name: partial(_images_per_s, read, batches * _BATCH) for name, read in reads.items()}
    return Table(size, rows, {"images per s": "{:,.0f}".format}, base="bare loop", warm_up=1)


def _images_per_s(read: Callable[[], object], images: int) -> Figures:
    start = time.perf_counter()
    read()
    return {"images per s": images / (time.perf_counter() - start)}


def _loop(files: Sequence[bytes], batches: int) -> Iterator[None]:
    """Makes `batches` batches in each step."""
    cv2, simplejpeg = opencv(), importlib.import_module("simplejpeg")
    crop, rng = transforms.RandomResizedCrop(SIDE), np.random.default_rng(0)
    mean, std = np.array([MEAN, STD], np.float32)[:, :, None]
    tables = (np.arange(256, dtype=np.float32) / 255 - mean) / std
    batch = np.empty((_BATCH, 3, SIDE, SIDE), np.float32)
    pixels = np.empty((SIDE, SIDE, 3), np.uint8)
    height, width = simplejpeg.decode_jpeg_header(files[0])[:2]
    decoded = np.empty((height, width, 3), np.uint8)
    while True:
        yield
        for number in range(batches * _BATCH):
            left, top, wide, high = crop.box(width, height)
            image = simplejpeg.decode_jpeg(files[number % len(files)], "RGB", buffer=decoded, strict=False)
            cv2.resize(image[top : top + high, left : left + wide], (SIDE, SIDE), dst=pixels)
            if rng.random() < 0.5:
                cv2.flip(pixels, 1, dst=pixels)
            for plane, table, out in zip(cv2.split(pixels), tables, batch[number % _BATCH], strict=True):
                cv2.LUT(plane, table, dst=out)


# -- speed of each step ------------------------------------------------------------------------------------------------


def steps(size: str, data: bytes) -> Table:
    """Returns a table of the time of `decode` with each decoder, at full and at reduced size, and of `Resize`."""
    image = vision.decode(data)
    rows: dict[str, Measure | str] = {}
    hidden: list[str] = []
    for module, name in (("simplejpeg", "simplejpeg"), ("cv2", "OpenCV"), ("PIL", "Pillow")):
        if importlib.util.find_spec(module) is None:
            rows[f"decode by {name}"] = "not installed"
            continue
        full, small = lambda: vision.decode(data), lambda: vision.decode(data, min_size=SIDE)
        rows[f"decode by {name}"] = partial(_calls, full, tuple(hidden))
        rows[f"decode by {name}, min_size={SIDE}"] = partial(_calls, small, tuple(hidden))
        hidden.append(module)
    rows["resize, linear"] = partial(_calls, lambda: transforms.Resize(SIDE)(image))
    rows["resize, area"] = partial(_calls, lambda: transforms.Resize(SIDE, interpolation=3)(image))
    return Table(f"Steps, {size}", rows, {"time": time_of})


def _calls(call: Callable[[], object], hidden: Sequence[str] = ()) -> Figures:
    """Returns the median time of a call while some modules cannot be imported."""
    saved = {name: sys.modules.get(name) for name in hidden}
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes the import fail
    try:
        times = []
        for _ in range(_CALLS + 2):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return {"time": median(times[2:])}
    finally:
        for name, module in saved.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


TOPIC: Final = Topic(run, rounds=7, packages=("simplejpeg", "opencv-python-headless", "pillow"))
