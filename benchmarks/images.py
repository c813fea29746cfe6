"""Times decoders, and `ImagePipeline` beside the same calls without a loader: `python -m benchmarks.images`.

It also counts the page faults of workers that decode, for each start method.

The limit is a loop in two processes at once that calls simplejpeg and OpenCV directly, with memory that it reuses. It
writes into one batch again and again, and sends nothing. Rounds of the loader and of the limit alternate.
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
from .usage import processes

_BATCH: Final = 32


# -- the limit ---------------------------------------------------------------------------------------------------------


def bare_loop(lane: Connection, files: Sequence[bytes], batches: int) -> None:
    """Makes `batches` batches whenever it is told to."""
    cv2, simplejpeg = opencv(), importlib.import_module("simplejpeg")
    crop, rng = transforms.RandomResizedCrop(SIDE), np.random.default_rng(0)
    mean, std = np.array([MEAN, STD], np.float32)[:, :, None]
    tables = (np.arange(256, dtype=np.float32) / 255 - mean) / std
    batch = np.empty((_BATCH, 3, SIDE, SIDE), np.float32)
    pixels = np.empty((SIDE, SIDE, 3), np.uint8)
    height, width = simplejpeg.decode_jpeg_header(files[0])[:2]
    decoded = np.empty((height, width, 3), np.uint8)
    while lane.recv():
        for number in range(batches * _BATCH):
            left, top, wide, high = crop.box(width, height)
            image = simplejpeg.decode_jpeg(files[number % len(files)], "RGB", buffer=decoded, strict=False)
            cv2.resize(image[top : top + high, left : left + wide], (SIDE, SIDE), dst=pixels)
            if rng.random() < 0.5:
                cv2.flip(pixels, 1, dst=pixels)
            for plane, table, out in zip(cv2.split(pixels), tables, batch[number % _BATCH], strict=True):
                cv2.LUT(plane, table, dst=out)
        lane.send(None)


class Limit:
    """Processes that run the bare loop at the same time."""

    def __init__(self, files: Sequence[bytes], workers: int, batches: int) -> None:
        context = multiprocessing.get_context("fork")
        self._lanes, self._processes = [], []
        for number in range(workers):
            lane, far_end = context.Pipe()
            share = batches // workers + (number < batches % workers)
            process = context.Process(target=bare_loop, args=(far_end, files, share), daemon=True)
            process.start()
            self._lanes.append(lane)
            self._processes.append(process)

    def epoch(self) -> float:
        """Seconds for all batches."""
        start = time.perf_counter()
        for lane in self._lanes:
            lane.send(True)
        for lane in self._lanes:
            lane.recv()
        return time.perf_counter() - start

    def close(self) -> None:
        for lane, process in zip(self._lanes, self._processes, strict=True):
            lane.send(False)
            process.join()


def loader_epoch(loader: DataLoader) -> float:
    """Seconds for all batches; each is deleted as soon as the next one arrives."""
    start = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - start


def pipeline(files: Sequence[bytes], **options: Any) -> vision.ImagePipeline:
    """The same as the bare loop."""
    dataset = SimpleDataset([(data, number) for number, data in enumerate(files)])
    return vision.ImagePipeline(dataset, SIDE, scale=AREA, flip=0.5, mean=MEAN, std=STD, **options)


def compare(files: Sequence[bytes], workers: int, rounds: int) -> None:
    """Prints images per second of the loader and of the limit, and the median and the range of their ratios."""
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
            f"  {name:26}{speed:8,.0f} images/s   {median(ratios):5.0%} of the bare loop "
            f"({min(ratios):.0%} to {max(ratios):.0%})"
        )


# -- page faults -------------------------------------------------------------------------------------------------------


def faults(dataset: Any, workers: int, start_method: str) -> float:
    """Page faults of the workers per sample, after two epochs."""
    with DataLoader(dataset, _BATCH, num_workers=workers, executor="process", start_method=start_method) as loader:
        for _ in range(2):
            loader_epoch(loader)
        before = _worker_faults()
        loader_epoch(loader)
        return (_worker_faults() - before) / len(dataset)


def _worker_faults() -> int:
    return sum(int(stat[7]) for pid, stat in processes().items() if pid != os.getpid())


def print_faults(size: str, files: Sequence[bytes], workers: int) -> None:
    """Of the pipeline and of a user's dataset that decodes by OpenCV, for each start method."""
    for name, dataset in (("ImagePipeline", pipeline(files)), ("OpenCV", Photos(files, len(files)))):
        counts = [f"{method} {faults(dataset, workers, method):.1f}" for method in ("fork", "forkserver", "spawn")]
        print(f"page faults per image, {size}, {name}: {', '.join(counts)}", flush=True)


# -- decoders ----------------------------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * median(times[2:])


def decoder_times(data: bytes, repeats: int) -> None:
    """Prints the time of `decode` with each decoder, at full size and scaled, and of `resize`."""
    image = vision.decode(data)
    hidden: list[str] = []
    for module, name in (("simplejpeg", "simplejpeg"), ("cv2", "OpenCV"), ("PIL.Image", "Pillow")):
        try:
            importlib.import_module(module)
        except ImportError:
            print(f"  {name} is not installed")
            continue
        saved = {other: sys.modules.get(other) for other in hidden}
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the import fails
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    opencv()
    sizes = {
        "500x375": _repeated(photos(500, 375, 600), 2048),
        "2000x1333": _repeated(photos(2000, 1333, 48), 256),
    }
    for name, files in sizes.items():  # first: what this process frees later hides the page faults of its workers
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
