"""Object stores: gluonloader's cache beside other loaders, and a warm cache beside local files.

All loaders read random samples of 10,240 bytes from the same S3 server on this machine, which waits 30 ms before each
answer. Each loader runs in a new program with an empty cache folder, whose limit is half of the data, and reads two
epochs. An epoch begins before the dataset is made, and after the imports. Each loader must deliver each sample once,
undamaged. The processor time is that of all processes but the server. The server counts requests and bytes; what a
loader fetches ahead for the next epoch counts in the epoch in which it is fetched.

python -m benchmarks stores --large --markdown benchmarks/STORES.md && python -m benchmarks.tables
"""

from __future__ import annotations

import importlib
import io
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from gluonloader import BlockShuffleSampler, DataLoader, FileDataset, NodeCache, vision
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.text import TokenDataset

from .harness import Figures, Measure, Table, Topic, text_of
from .processes import peak, processes
from .programs import Program, in_new_program
from .report import time_of
from .store_loaders import CHUNK, LOADERS, WORDS, Place, StoreLoader, numbers_of, samples

_DELAY_S: Final = 0.03  # before each answer of the server
_LARGE: Final = 10
_IMAGES: Final = 1000
_FILES: Final = 5000
_FILE_BYTES: Final = 20_000
_TOKENS: Final = 50_000_000
_WARM_ROUNDS: Final = 5

_COUNT: Final[Callable[[float], str]] = "{:,.0f}".format
_SMALL: Final[Callable[[float], str]] = "{:.3f}".format
_MEAN: Final[Callable[[float], str]] = "{:.1f}".format
_OF_AN_EPOCH: Final = {
    "samples/s": _COUNT, "first batch": time_of, "CPU s per 10^6": _COUNT, "requests per sample": _SMALL, "MB": _COUNT,
}  # fmt: skip
_COLUMNS: Final = {f"{name}, epoch {epoch}": text for name, text in _OF_AN_EPOCH.items() for epoch in (1, 2)} | {
    "MB on disk": _COUNT, "chunks in a batch": _MEAN, "in a full shuffle": _MEAN
}  # fmt: skip


def run(options: Namespace) -> Iterator[str]:
    """Yields the tables as soon as they are measured."""
    parts = ["# Results of object stores", "`python -m benchmarks stores --markdown` writes this page; do not edit it."]
    parts += [f"```text\n{options.about}\n```", (__doc__ or "").partition("\n\n")[2].rpartition("\n\n")[0]]
    for part in _tables(options):
        parts.append(part)
        yield part
    if options.markdown is not None:
        Path(options.markdown).write_text("\n\n".join(parts) + "\n")


def _tables(options: Namespace) -> Iterator[str]:
    with _bucket(options, options.samples) as (place, server):
        yield _compared("store", options, place, server)
        if not options.cold:  # its loaders start workers, so not before
            with ExitStack() as stack:
                yield text_of(_warm(place, stack), _WARM_ROUNDS)
    if options.large:
        with _bucket(options, _LARGE * options.samples) as (place, server):
            yield _compared("large", options, place, server)


@contextmanager
def _bucket(options: Namespace, count: int) -> Iterator[tuple[Place, Any]]:
    """A place for so many samples, and its server."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        root = Path(name)
        (root / "bucket").mkdir()
        server = stack.enter_context(_server().store_server(root, delay_s=_DELAY_S))
        stack.enter_context(patch.dict(os.environ, {**server.environment, "S3_ENDPOINT_URL": server.url}))
        yield Place(root, server.url, count, root / "cache", count * WORDS * 8 // 2, options.workers), server


def _compared(name: str, options: Namespace, place: Place, server: Any) -> str:
    """The table of all loaders."""
    chosen = [loader for loader in LOADERS if loader.name in options.names]
    rows = {loader.name: loader.absence() or partial(_measured, loader, place, server) for loader in chosen}
    data = f"{place.samples:,} samples ({place.samples * WORDS * 8 / 1e6:,.0f} MB)"
    return text_of(Table(f"## {name}\n\n{data}, limit {place.limit / 1e6:,.0f} MB", rows, _COLUMNS), options.rounds)


def _server() -> Any:
    """The module of the server, which the tests use as well."""
    folder = str(Path(__file__).parent.parent / "tests" / "stores")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("store_server")


# -- loaders beside each other -----------------------------------------------------------------------------------------


def _measured(loader: StoreLoader, place: Place, server: Any) -> Figures:
    """Two epochs of a loader; it writes its data before if they are not there."""
    marker = place.root / f"{loader.name} has written"
    if not marker.exists():
        in_new_program(loader.write, place)
        marker.touch()
    figures: dict[str, float] = {"in a full shuffle": _of_full_shuffle(place)}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=place.root, ignore_cleanup_errors=True))
        place = replace(place, cache=Path(folder))
        disk = stack.enter_context(peak(partial(_space_of, folder), 0.02))
        program = stack.enter_context(Program(_epochs, loader, place, method="spawn"))
        program.answer()
        server.counts()
        for epoch in (1, 2):
            cpu_s = _cpu_s(program.pid, folder)
            program.begin()
            read: dict[str, float] = program.answer(max(300, place.samples / 50))
            counts, cpu_s = server.counts(), _cpu_s(program.pid, folder) - cpu_s
            requests = counts["get"] + counts["head"] + counts["list"]
            figures |= {
                f"samples/s, epoch {epoch}": place.samples / read["seconds"],
                f"first batch, epoch {epoch}": read["first"],
                f"CPU s per 10^6, epoch {epoch}": cpu_s / place.samples * 1e6,
                f"requests per sample, epoch {epoch}": requests / place.samples,
                f"MB, epoch {epoch}": counts["bytes"] / 1e6,
                "chunks in a batch": read["chunks"],
            }
    return figures | {"MB on disk": max(disk) / 1e6}


def _epochs(loader: StoreLoader, place: Place) -> Iterator[dict[str, float] | None]:
    """The steps of a loader's program: its imports, and then an epoch each time."""
    warnings.simplefilter("ignore")
    multiprocessing.set_start_method("fork", force=True)  # as in a program that a user starts
    loader.load()
    yield None
    started = time.perf_counter()
    for batches in loader.epochs(place):
        yield _read(batches, started, place.samples)
        started = time.perf_counter()


def _read(batches: Iterable[Any], started: float, count: int) -> dict[str, float]:
    """Reads an epoch, and raises an AssertionError unless each sample comes once, undamaged."""
    seen, first_s = [], 0.0
    for batch in batches:
        first_s = first_s or time.perf_counter() - started
        seen.append(numbers_of(batch))
    seconds = time.perf_counter() - started
    found = np.sort(np.concatenate(seen))
    assert np.array_equal(found, np.arange(count)), f"{len(found):,} of {count:,} samples have come, or some are wrong"
    chunks = [len(np.unique(_chunks_of(numbers))) for numbers in seen]
    return {"seconds": seconds, "first": first_s, "chunks": float(np.mean(chunks))}


def _chunks_of(numbers: Any) -> Any:
    return numbers * WORDS * 8 // CHUNK


def _of_full_shuffle(place: Place) -> float:
    """How many chunks a batch of 32 samples would mix if all samples were shuffled together."""
    chunks = int(_chunks_of(place.samples - 1)) + 1
    return float(chunks * (1 - (1 - 1 / chunks) ** 32))


def _cpu_s(pid: int, folder: str) -> float:
    """Processor time of a process, its descendants, and gluonloader's fetcher, which is no descendant."""
    spent = processes(pid)
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it belongs to another user, or has ended
            if os.readlink(path) == folder:
                spent |= processes(int(path.parent.name))
    return sum(each.cpu_s + each.ended_cpu_s for each in spent.values())


def _space_of(folder: str) -> int:
    """Bytes of the disk that the files of a folder occupy; no file counts twice because it was renamed just now."""
    paths = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    space = {}
    for path in paths:
        with suppress(FileNotFoundError):  # it was removed just now
            status = os.stat(path)
            space[status.st_ino] = status.st_blocks * 512
    return sum(space.values())


# -- a warm cache beside local files -----------------------------------------------------------------------------------


def _warm(place: Place, stack: ExitStack) -> Table:
    """All data fit in the cache, and are there after the first round, which does not count."""
    _write_warm(place)
    cache = NodeCache(place.root / "warm", limit="20 GB")

    def data(kind: str, remote: bool) -> Any:
        path = place.url(kind) if remote else place.path(kind)
        given: dict[str, Any] = {"cache": cache} if remote else {}
        if kind == "tokens.bin":
            return TokenDataset(path, **given).windows(2048)
        if kind == "files/*":
            return FileDataset(path, **given)
        return RecordFileDataset(path, **given)

    def loader(kind: str, shuffle: bool, workers: int, remote: bool) -> Any:
        dataset = data(kind, remote)
        order = {"shuffle": True} if shuffle else {"sampler": BlockShuffleSampler(dataset.blocks, buffer=4, seed=1)}
        dataset = dataset.transform(vision.decode) if kind == "images.rec" else dataset
        return stack.enter_context(DataLoader(dataset, 32, num_workers=workers, seed=1, **order))

    rows: dict[str, Measure | str] = {}
    kinds = {
        "records of 10 kB, blocks": ("records.rec", False), "records of 10 kB, shuffle=True": ("records.rec", True),
        "windows of 2048 tokens": ("tokens.bin", False), "JPEGs of 100 kB": ("images.rec", False),
        "files of 20 kB, shuffle=True": ("files/*", True),
    }  # fmt: skip
    for name, (kind, shuffle) in kinds.items():
        if kind == "images.rec" and not place.path(kind).exists():
            rows[name] = "Pillow is not installed"
            continue
        for workers in (0, place.workers):
            pair = [loader(kind, shuffle, workers, remote) for remote in (False, True)]
            rows[f"{name}, {workers} workers"] = partial(_beside, *pair)
    title = "## warm\n\nSamples/s of local files, and of a warm cache with the same data; batches of 32, open loaders"
    return Table(title, rows, {"local": _COUNT, "cache": _COUNT, "cache / local": "{:.2f}".format}, warm_up=1)


def _write_warm(place: Place) -> None:
    """Writes records, files, tokens and JPEGs into the bucket; the local loaders read the same files."""
    with IndexedRecordIO(place.path("records.rec"), "w") as file:
        for number, words in enumerate(samples(min(place.samples, 20_000))):
            file.write_idx(number, words.tobytes())
    rng = np.random.default_rng(0)
    place.path("files").mkdir()
    for number in range(_FILES):
        (place.path("files") / f"{number:05}").write_bytes(rng.bytes(_FILE_BYTES))
    tokens = rng.integers(1, 50_000, _TOKENS).astype(np.uint16)
    TokenDataset.write(place.path("tokens"), np.array_split(tokens, _TOKENS // 1000))
    try:
        image = importlib.import_module("PIL.Image")
    except ImportError:
        return
    with IndexedRecordIO(place.path("images.rec"), "w") as file:
        for number in range(_IMAGES):
            coarse = rng.integers(0, 256, (120, 160, 3), np.uint8)
            picture, data = image.fromarray(coarse).resize((480, 360)), io.BytesIO()
            picture.save(data, "JPEG", quality=93)
            file.write_idx(number, data.getvalue())


def _beside(local: Any, cached: Any) -> Figures:
    """Samples per second of both, and their ratio."""
    speeds = []
    for loader in (local, cached):
        start = time.perf_counter()
        for _ in loader:
            pass
        speeds.append(len(loader) * 32 / (time.perf_counter() - start))
    return {"local": speeds[0], "cache": speeds[1], "cache / local": speeds[1] / speeds[0]}


TOPIC: Final = Topic(
    run,
    rounds=1,
    names=[loader.name for loader in LOADERS],
    options={
        "samples": (20_000, "number of samples of 10,240 bytes"),
        "large": (False, "also compare the loaders with 10 times as many samples"),
        "cold": (False, "only compare the loaders, not a warm cache with local files"),
        "markdown": (None, "write the results into this file, as a page of Markdown"),
    },
    packages=("torch", "mosaicml-streaming", "litdata", "webdataset", "boto3", "obstore"),
)
