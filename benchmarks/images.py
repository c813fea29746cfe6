"""Times decoders, and compares `ImagePipeline` with the same calls without a loader: `python -m benchmarks.images`.

The program also counts the page faults of workers that decode images, for each start method.

The limit is a loop that runs in several processes at the same time. It calls simplejpeg and OpenCV directly, and reuses
its memory: it writes all batches into the same array, and sends no data. Rounds of the loaders and of the limit
alternate.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader, SimpleDataset, vision
from gluonloader.vision import transforms

from .datasets import AREA, MEAN, SIDE, STD, Maker, Photos, opencv, photos
from .processes import processes

_BATCH: Final = 32


# -- the limit ---------------------------------------------------------------------------------------------------------


def bare_loop(connection: Connection, files: Sequence[bytes], batches: int) -> None:
    """Makes `batches` batches each time the connection receives True."""
    cv2, simplejpeg = opencv(), importlib.import_module("simplejpeg")
    crop, rng = transforms.RandomResizedCrop(SIDE), np.random.default_rng(0)
    mean, std = np.array([MEAN, STD], np.float32)[:, :, None]
    tables = (np.arange(256, dtype=np.float32) / 255 - mean) / std
    batch = np.empty((_BATCH, 3, SIDE, SIDE), np.float32)
    pixels = np.empty((SIDE, SIDE, 3), np.uint8)
    height, width = simplejpeg.decode_jpeg_header(files[0])[:2]
    decoded = np.empty((height, width, 3), np.uint8)
    while connection.recv():
        for number in range(batches * _BATCH):
            left, top, wide, high = crop.box(width, height)
            image = simplejpeg.decode_jpeg(files[number % len(files)], "RGB", buffer=decoded, strict=False)
            cv2.resize(image[top : top + high, left : left + wide], (SIDE, SIDE), dst=pixels)
            if rng.random() < 0.5:
                cv2.flip(pixels, 1, dst=pixels)
            for plane, table, out in zip(cv2.split(pixels), tables, batch[number % _BATCH], strict=True):
                cv2.LUT(plane, table, dst=out)
        connection.send(None)


class Limit:
    """Runs the bare loop in several processes at the same time."""

    def __init__(self, files: Sequence[bytes], workers: int, batches: int) -> None:
        context = multiprocessing.get_context("fork")
        self._connections, self._processes = [], []
        for number in range(workers):
            connection, far_end = context.Pipe()
            share = batches // workers + (number < batches % workers)
            process = context.Process(target=bare_loop, args=(far_end, files, share), daemon=True)
            process.start()
            self._connections.append(connection)
            self._processes.append(process)

    def epoch(self) -> float:
        """Returns the seconds that all batches together take."""
        start = time.perf_counter()
        for connection in self._connections:
            connection.send(True)
        for connection in self._connections:
            connection.recv()
        return time.perf_counter() - start

    def close(self) -> None:
        for connection, process in zip(self._connections, self._processes, strict=True):
            connection.send(False)
            process.join()


def loader_epoch(loader: DataLoader) -> float:
    """Returns the seconds of an epoch; each batch is deleted as soon as the next batch arrives."""
    start = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - start


def pipeline(files: Sequence[bytes], **options: Any) -> vision.ImagePipeline:
    """Returns an `ImagePipeline` that makes the same images as the bare loop."""
    dataset = SimpleDataset([(data, number) for number, data in enumerate(files)])
    return vision.ImagePipeline(dataset, SIDE, scale=AREA, flip=0.5, mean=MEAN, std=STD, **options)


def compare(files: Sequence[bytes], workers: int, rounds: int) -> None:
    """Prints images per second of the loaders and of the limit, and the median and the range of their ratios."""
    batches = len(files) // _BATCH
    limit = Limit(files, workers, batches)
    plain, scaled = pipeline(files), pipeline(files, scaled_decode=True)
    options: dict[str, Any] = {"num_workers": workers, "last_batch": "discard", "seed": 0}
    with (
        DataLoader(plain, _BATCH, executor="process", **options) as loader,
        DataLoader(scaled, _BATCH, executor="process", **options) as small,
        DataLoader(plain, _BATCH, executor="thread", **options) as threads,
    ):
        contenders: dict[str, Callable[[], float]] = {
            "bare loop": limit.epoch,
            "processes": lambda: loader_epoch(loader),
            "threads": lambda: loader_epoch(threads),
            "processes, scaled_decode": lambda: loader_epoch(small),
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(rounds + 1):
            for name, epoch in contenders.items():
                seconds = epoch()
                if number:  # the first round warms up
                    times[name].append(seconds)
    limit.close()
    for name, seconds_of in times.items():
        ratios = [bare / mine for bare, mine in zip(times["bare loop"], seconds_of, strict=True)]
        speed = batches * _BATCH / median(seconds_of)
        print(
            f"  {name:26}{speed:8,.0f} images/s   {100 * median(ratios):5.0f} % of the bare loop "
            f"({100 * min(ratios):.0f} % to {100 * max(ratios):.0f} %)"
        )


# -- page faults -------------------------------------------------------------------------------------------------------


def faults(dataset: Any, workers: int, start_method: str) -> float:
    """Returns the page faults of the workers per sample in the third epoch."""
    with DataLoader(dataset, _BATCH, num_workers=workers, executor="process", start_method=start_method) as loader:
        for _ in range(2):
            loader_epoch(loader)
        before = _worker_faults()
        loader_epoch(loader)
        return (_worker_faults() - before) / len(dataset)


def _worker_faults() -> int:
    return sum(spent.faults for pid, spent in processes().items() if pid != os.getpid())


def print_faults(size: str, files: Sequence[bytes], workers: int) -> None:
    """Prints the page faults of `ImagePipeline`, and of a dataset that decodes with OpenCV, for each start method."""
    for name, dataset in (("ImagePipeline", pipeline(files)), ("OpenCV", Photos(files, len(files)))):
        counts = [f"{method} {faults(dataset, workers, method):.1f}" for method in ("fork", "forkserver", "spawn")]
        print(f"page faults per image, {size}, {name}: {', '.join(counts)}", flush=True)


# -- decoders ----------------------------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Returns the median time of a call in milliseconds."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * median(times[2:])


def decoder_times(data: bytes, repeats: int) -> None:
    """Prints the time of `decode` with each decoder, at full size and at a reduced size, and the time of `Resize`."""
    image = vision.decode(data)
    hidden: list[str] = []
    for module, name in (("simplejpeg", "simplejpeg"), ("cv2", "OpenCV"), ("PIL.Image", "Pillow")):
        try:
            importlib.import_module(module)
        except ImportError:
            print(f"  {name} is not installed")
            continue
        saved = {other: sys.modules.get(other) for other in hidden}
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes the import fail
        full = milliseconds(lambda: vision.decode(data), repeats)
        small = milliseconds(lambda: vision.decode(data, min_size=SIDE), repeats)
        gray = milliseconds(lambda: vision.decode(data, color="gray"), repeats)
        print(f"  {name:12} full {full:6.2f} ms   min_size=224 {small:6.2f} ms   gray {gray:6.2f} ms")
        for other, value in saved.items():
            sys.modules.pop(other)
            if value is not None:
                sys.modules[other] = value
        hidden.append(module)
    linear = milliseconds(lambda: transforms.Resize(SIDE)(image), repeats)
    area = milliseconds(lambda: transforms.Resize(SIDE, interpolation=3)(image), repeats)
    print(f"  resize to 224: linear {linear:.2f} ms, area {area:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.images", description="Times decoders and ImagePipeline.")
    parser.add_argument("--rounds", type=int, default=7, help="number of timed rounds (default 7)")
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default 2)")
    arguments = parser.parse_args()
    opencv()
    sizes = {
        "500x375": _repeated(photos(500, 375, 600), 2048),
        "2000x1333": _repeated(photos(2000, 1333, 48), 256),
    }
    for name, files in sizes.items():  # before `compare`, whose freed memory would hide the page faults of workers
        print_faults(name, files, arguments.workers)
    for name, files in sizes.items():
        print(name, flush=True)
        compare(files, arguments.workers, arguments.rounds)
        decoder_times(files[0], 60 if name == "500x375" else 15)


def _repeated(make: Maker, count: int) -> list[bytes]:
    files = make(count).files
    return [files[number % len(files)] for number in range(count)]


if __name__ == "__main__":
    main()
