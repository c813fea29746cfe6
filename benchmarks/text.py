"""Text: how full packed rows are, and what planning, packing, start and resume cost, beside Grain and trl.

The lengths of the documents are log-normal: turns of a chat have a median of 45 tokens, pages of the web 269, files of
source code 1,975, books 90,000. Documents are cut where they are longer than a row; Grain's best fit refuses them, so
there they are cut before. Tokens per second are per second of processor time of all processes; the other times are wall
times.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import resource
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gluonloader import DataLoader, MixtureSampler, RandomSampler
from gluonloader.sampler.base import order_of
from gluonloader.sampler.saved import loading_order, saved_order
from gluonloader.text import PackedDataset, PackedStream, PackingSampler, PackRows, TokenBatchSampler, TokenDataset

from .harness import Figures, Measure, Table, Topic
from .processes import memory_of
from .programs import in_new_program
from .report import size_of, time_of

_SIZE: Final = 2048  # tokens in a row
_BATCH: Final = 8  # rows
_MEDIANS: Final = {"chat": 45, "pages": 269, "code": 1975, "books": 90_000}  # tokens
_MANY: Final = 10**9  # documents, for start and resume
_COLUMNS: Final = {"million tokens per CPU second": "{:.1f}".format, "rows are full": "{:.2%}".format}

Places = Callable[[], int]  # plans or reads all rows, and returns how many tokens would fit in them


def run(options: Namespace) -> Iterator[Table]:
    """Yields the tables."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        for kind, median in _MEDIANS.items():
            normal = rng.normal(np.log(median), 0.95, options.documents * _MEDIANS["pages"] // median)
            lengths = np.exp(normal).astype(np.int64) + 1
            yield Table(f"{kind}: planning", _planning(lengths), _COLUMNS)
            documents = (rng.integers(1, 50_000, length).astype(np.uint16) for length in lengths)
            data = TokenDataset.write(Path(name) / kind, documents)
            title = f"{kind}: batches of {_BATCH} rows of {_SIZE} tokens"
            yield Table(title, _packing(data, options.workers), _COLUMNS)
            of_peers = [data[index].astype(np.int64) for index in range(max(1, len(data) // 5))]
            yield Table(f"the same, {len(of_peers):,} documents in a list, no workers", _peers(of_peers), _COLUMNS)
        yield Table(f"batches of {_BATCH} windows of {_SIZE} tokens", _windows(data, f"{name}/{kind}.bin"), _COLUMNS)
    many = {f"{_MANY:,}": lambda: in_new_program(_many)}
    columns = {"first row": time_of, "memory": size_of, "state": size_of, "resume in the middle": time_of}
    yield Table("Documents whose lengths are in an array that takes no memory", many, columns)


def _cpu_s() -> float:
    """The processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _speed(places: Places, full: Callable[[int], float]) -> Measure:
    """Returns a function that measures the speed; `full` is the share of the places that have a token."""

    def measure() -> Figures:
        start = _cpu_s()
        found = places()
        spent = _cpu_s() - start
        return {"million tokens per CPU second": found / spent / 1e6, "rows are full": full(found)}

    return measure


# -- planning ----------------------------------------------------------------------------------------------------------


def _planning(lengths: NDArray[np.int64]) -> dict[str, Measure | str]:
    parts = [TokenDataset([np.zeros(length, np.uint8) for length in part]) for part in np.array_split(lengths, 4)]
    mixture = MixtureSampler(parts, weights=[4, 3, 2, 1], unit="tokens", num_samples=len(lengths), seed=0)
    packed = PackingSampler(lengths, _SIZE, seed=0)
    mixed = PackingSampler(lengths, _SIZE, sampler=mixture, seed=0)
    lengths = np.minimum(lengths, _SIZE)  # such batches contain whole documents
    batches = TokenBatchSampler(lengths, 16_384, seed=0)
    return {
        "PackingSampler": _speed(partial(_plan, packed), lambda places: packed.stats().fill),
        "the same over a mixture of 4 datasets by tokens": _speed(
            partial(_plan, mixed), lambda places: mixed.stats().fill
        ),
        "TokenBatchSampler, 16,384 padded tokens": _speed(
            lambda: sum(int(lengths[batch].sum()) for batch in batches), lambda places: batches.stats().use
        ),
    }


def _plan(sampler: PackingSampler) -> int:
    return sum(1 for _ in sampler) * _SIZE


# -- packing -----------------------------------------------------------------------------------------------------------


def _packing(data: TokenDataset, workers: int) -> dict[str, Measure | str]:
    tokens = int(data.lengths.sum())
    return {
        f"gluonloader, {count} workers": _speed(partial(_read, data, count), lambda places: tokens / places)
        for count in (0, workers)
    }


def _read(data: TokenDataset, workers: int) -> int:
    order = PackingSampler(data.lengths, _SIZE, seed=0)
    with DataLoader(PackedDataset(data), _BATCH, sampler=order, batchify_fn=PackRows(), num_workers=workers) as loader:
        return sum(batch["tokens"].size for batch in loader)


def _windows(data: TokenDataset, path: str) -> dict[str, Measure | str]:
    """Windows in a random order, as tensors where torch is installed."""
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch:
        importlib.import_module("torch")  # not within the time
    count = len(data.windows(_SIZE)) // _BATCH

    def read() -> int:
        windows = data.windows(_SIZE)
        output = "torch" if has_torch else None
        with DataLoader(windows, _BATCH, shuffle=True, last_batch="discard", seed=0, output=output) as loader:
            # As there, the tokens become int64, of which the inputs and the labels are views here.
            return sum(len(batch.long() if has_torch else batch.astype(np.int64)) * _SIZE for batch in loader)

    rows: dict[str, Measure | str] = {}
    for package, name, places in (
        ("numpy", "gluonloader, no workers", read),
        ("torch", "torch.stack over a memmap, as nanoGPT reads", partial(_as_nanogpt, path, count)),
        ("litdata", "LitData, TokensLoader", partial(_as_litdata, path)),
    ):
        missing = importlib.util.find_spec(package) is None
        rows[name] = f"{package} is not installed" if missing else _speed(places, lambda places: 1.0)
    return rows


def _as_nanogpt(path: str, count: int) -> int:
    torch = importlib.import_module("torch")
    read = 0
    for _ in range(count):
        data = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - _SIZE, (_BATCH,)).tolist()
        inputs = torch.stack([torch.from_numpy(data[start : start + _SIZE].astype(np.int64)) for start in starts])
        torch.stack([torch.from_numpy(data[start + 1 : start + 1 + _SIZE].astype(np.int64)) for start in starts])
        read += inputs.numel()
    return read


def _as_litdata(path: str) -> int:
    litdata, torch = map(importlib.import_module, ("litdata", "torch"))
    loader = importlib.import_module("litdata.streaming.item_loader").TokensLoader(block_size=_SIZE + 1)
    with_loader = importlib.import_module("litdata.streaming.writer").BinaryWriter
    folder = f"{path}.litdata"
    if not Path(folder).exists():
        writer = with_loader(folder, chunk_bytes="64MB", item_loader=loader)
        tokens = np.fromfile(path, np.uint16).astype(np.int32)
        for number, start in enumerate(range(0, len(tokens), 2000)):
            writer[number] = torch.from_numpy(tokens[start : start + 2000])
        writer.done()
        writer.merge()
    windows = litdata.StreamingDataset(folder, item_loader=loader, shuffle=True, seed=0)
    return sum(len(batch.long()) * _SIZE for batch in litdata.StreamingDataLoader(windows, batch_size=_BATCH))


def _peers(documents: list[NDArray[np.int64]]) -> dict[str, Measure | str]:
    tokens = sum(map(len, documents))
    rows: dict[str, Measure | str] = {}
    for package, name, prepare in (
        ("numpy", "PackedStream", _stream),
        ("grain", "Grain, BestFitPackIterDataset, 64 bins", partial(_grain, "BestFitPackIterDataset")),
        ("grain", "Grain, ConcatThenSplitIterDataset, as torchtitan", partial(_grain, "ConcatThenSplitIterDataset")),
        ("trl", "trl, pack_dataset, bfd_split, batches not read", _trl),
    ):
        if importlib.util.find_spec(package) is None:
            rows[name] = f"{package} is not installed"
        else:
            rows[name] = _speed(prepare(documents), lambda places: tokens / places)
    return rows


def _stream(documents: list[NDArray[np.int64]]) -> Places:
    def read() -> int:
        order = RandomSampler(len(documents), seed=0)
        with DataLoader(PackedStream(documents, _SIZE, order), _BATCH, batchify_fn=PackRows()) as loader:
            return sum(batch["tokens"].size for batch in loader)

    return read


def _grain(kind: str, documents: list[NDArray[np.int64]]) -> Places:
    logging.getLogger("absl").setLevel(logging.ERROR)
    grain = importlib.import_module("grain")
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()

    def read() -> int:
        parts = documents
        if kind == "BestFitPackIterDataset":
            parts = [tokens[at : at + _SIZE] for tokens in documents for at in range(0, len(tokens), _SIZE)]
        source = grain.MapDataset.source([{"tokens": tokens} for tokens in parts]).shuffle(seed=0)
        stream = source.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        best_fit = {"num_packing_bins": 64, "seed": 0} if kind == "BestFitPackIterDataset" else {}
        packed = getattr(grain.experimental, kind)(stream, length_struct={"tokens": _SIZE}, **best_fit)
        return sum(batch["tokens"].size for batch in packed.batch(_BATCH))

    return read


def _trl(documents: list[NDArray[np.int64]]) -> Places:
    datasets = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    source = datasets.Dataset.from_dict({"input_ids": documents}).shuffle(seed=0)
    pack = importlib.import_module("trl.data_utils").pack_dataset
    return lambda: (
        len(pack(source, _SIZE, "bfd_split", {"keep_in_memory": True, "load_from_cache_file": False})) * _SIZE
    )


# -- start and resume --------------------------------------------------------------------------------------------------


def _many() -> Figures:
    """Start, memory and resume with very many documents."""
    lengths = np.broadcast_to(np.int32(420), _MANY)  # takes no memory, as a mapped file
    before, start = memory_of("Pss_Anon"), time.perf_counter()
    sampler = PackingSampler(lengths, _SIZE, seed=0)
    next(iter(sampler))
    first, taken = time.perf_counter() - start, memory_of("Pss_Anon") - before
    state = saved_order(sampler, 0, order_of(sampler, 0))
    size = len(json.dumps(state))
    middle = _MANY // 8192 * 1024, _MANY // 8192  # rows before a window in the middle, and the window
    state["checkpoint"] = [middle[1], middle[0]]
    start = time.perf_counter()
    resumed = PackingSampler(lengths, _SIZE, seed=0)
    loading_order(resumed, state)()
    order = order_of(resumed, 0)
    assert order is not None
    order[middle[0] + 1 : middle[0] + 2]
    return {
        "first row": first, "memory": taken, "state": size, "resume in the middle": time.perf_counter() - start,
    }  # fmt: skip


TOPIC: Final = Topic(
    run,
    options={"documents": (100_000, "number of documents")},
    packages=("grain", "trl", "datasets", "litdata", "torch"),
)
