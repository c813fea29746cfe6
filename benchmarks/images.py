"""Times decoders, and `ImagePipeline` beside the same calls without a loader: `python -m benchmarks.images`.

The limit is a loop in two processes at once that calls simplejpeg and OpenCV directly, with memory that it reuses. It
writes into one batch again and again, and sends nothing. Rounds of the loader and of the limit alternate.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader, SimpleDataset, vision
from gluonloader.vision import transforms

from .datasets import opencv

_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
_STD: Final = np.array([0.229, 0.224, 0.225], np.float32)
_SIDE: Final = 224
_BATCH: Final = 32
_SIZES: Final = {"500x375": (500, 375), "2000x1333": (2000, 1333)}


def photos(size: tuple[int, int], count: int) -> list[bytes]:
    """JPEG files of crops of scikit-learn's sample pictures, quality 90."""
    cv2, rng = opencv(), np.random.default_rng(0)
    scenes = importlib.import_module("sklearn.datasets").load_sample_images().images
    files = []
    for number in range(count):
        scene = scenes[number % len(scenes)]
        height = int(rng.integers(240, scene.shape[0] + 1))
        width = height * 4 // 3
        top, left = rng.integers(0, scene.shape[0] - height + 1), rng.integers(0, scene.shape[1] - width + 1)
        crop = cv2.resize(scene[top : top + height, left : left + width], size, interpolation=cv2.INTER_CUBIC)
        files.append(cv2.imencode(".jpg", crop[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())
    return files


# -- the limit ---------------------------------------------------------------------------------------------------------


def bare_loop(lane: Connection, files: Sequence[bytes], batches: int) -> None:
    """Makes `batches` batches whenever it is told to."""
    cv2, simplejpeg = opencv(), importlib.import_module("simplejpeg")
    crop, rng = transforms.RandomResizedCrop(_SIDE), np.random.default_rng(0)
    tables = (np.arange(256, dtype=np.float32) / 255 - _MEAN[:, None]) / _STD[:, None]
    batch = np.empty((_BATCH, 3, _SIDE, _SIDE), np.float32)
    pixels = np.empty((_SIDE, _SIDE, 3), np.uint8)
    height, width = simplejpeg.decode_jpeg_header(files[0])[:2]
    decoded = np.empty((height, width, 3), np.uint8)
    while lane.recv():
        for number in range(batches * _BATCH):
            left, top, wide, high = crop.box(width, height)
            image = simplejpeg.decode_jpeg(files[number % len(files)], "RGB", buffer=decoded, strict=False)
            cv2.resize(image[top : top + high, left : left + wide], (_SIDE, _SIDE), dst=pixels)
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


def compare(size: tuple[int, int], count: int, workers: int, rounds: int) -> None:
    """Prints images per second of the loader and of the limit, and the median of their ratios."""
    files = photos(size, count)
    batches = len(files) // _BATCH
    limit = Limit(files, workers, batches)
    pipeline = {"scale": (0.08, 1.0), "flip": 0.5, "mean": _MEAN.tolist(), "std": _STD.tolist()}
    dataset = SimpleDataset([(data, number) for number, data in enumerate(files)])
    scaled = vision.ImagePipeline(dataset, _SIDE, scaled_decode=True, **pipeline)  # type: ignore[arg-type]
    plain = vision.ImagePipeline(dataset, _SIDE, **pipeline)  # type: ignore[arg-type]
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
        print(f"  {name:26}{speed:8,.0f} images/s   {median(ratios):5.0%} of the bare loop")


# -- decoders ----------------------------------------------------------------------------------------------------------


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * median(times[2:])


def decoder_times(size: tuple[int, int], repeats: int) -> None:
    """Prints the time of `decode` with each decoder, at full size and scaled, and of `resize`."""
    (data,) = photos(size, 1)
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
        small = milliseconds(lambda: vision.decode(data, min_size=_SIDE), repeats)
        gray = milliseconds(lambda: vision.decode(data, color="gray"), repeats)
        print(f"  {name:12} full {full:6.2f} ms   min_size=224 {small:6.2f} ms   gray {gray:6.2f} ms")
        for other, value in saved.items():
            sys.modules.pop(other)
            if value is not None:
                sys.modules[other] = value
        hidden.append(module)
    linear = milliseconds(lambda: transforms.Resize(_SIDE)(image), repeats)
    area = milliseconds(lambda: transforms.Resize(_SIDE, interpolation=3)(image), repeats)
    print(f"  resize to 224: linear {linear:.2f} ms, area {area:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.images", description="Times decoders and ImagePipeline.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for name, size in _SIZES.items():
        print(name, flush=True)
        decoder_times(size, 60 if size[0] < 1000 else 15)
        compare(size, 2048 if size[0] < 1000 else 256, arguments.workers, arguments.rounds)


if __name__ == "__main__":
    main()
