"""Text: how full packed rows are, and what planning, packing, windows, start and resume cost, beside Grain and trl.

    python -m benchmarks.text

The lengths of the documents are log-normal: their median is 269, and they have at most 2,048 tokens. All times are
processor times of all processes, except for those that say "wall".
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gluonloader import ArrayDataset, DataLoader, MixtureSampler, RandomSampler
from gluonloader.sampler.base import order_of
from gluonloader.sampler.saved import loading_order, saved_order
from gluonloader.text import PackedDataset, PackedStream, PackingSampler, PackRows, TokenBatchSampler, TokenDataset

from .report import machine
from .variants import LOADERS

_DOCUMENTS: Final = 100_000
_SIZE: Final = 2048  # tokens in a row
_BATCH: Final = 8  # rows
_PEERS_DOCUMENTS: Final = 20_000  # of them, for the peers
_ROUNDS: Final = 3
_MANY: Final = 10**9  # documents, for start and resume


def lengths_of(count: int) -> NDArray[np.int64]:
    """The lengths of documents."""
    rng = np.random.default_rng(0)
    return np.minimum(np.exp(rng.normal(np.log(269), 0.95, count)).astype(np.int64) + 1, _SIZE)


def cpu_s() -> float:
    """The processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def best(function: Callable[[], int]) -> float:
    """Millions of tokens per second of processor time: the best round; `function` returns the tokens of a round."""
    speeds = []
    for _ in range(_ROUNDS):
        start = cpu_s()
        tokens = function()
        speeds.append(tokens / (cpu_s() - start) / 1e6)
    return max(speeds)


def show(what: str, value: str) -> None:
    print(f"  {what:64}{value:>24}", flush=True)


def planning(lengths: NDArray[np.int64]) -> None:
    """How full rows and batches are, and how fast they are planned."""
    print("planning: fill, and millions of tokens per second of processor time")
    for method in ("best_fit", "in_order", "split"):
        sampler = PackingSampler(lengths, _SIZE, method=method, seed=0)  # type: ignore[arg-type]
        speed = best(partial(_plan, sampler))
        show(f"PackingSampler, {method}", f"{sampler.stats().fill:.3%}   {speed:7.0f}")
    batches = TokenBatchSampler(lengths, 16_384, seed=0)
    speed = best(lambda: sum(int(lengths[batch].sum()) for batch in batches))
    show("TokenBatchSampler, 16,384 padded tokens", f"{batches.stats().use:.3%}   {speed:7.0f}")
    parts = [TokenDataset([np.zeros(length, np.uint8) for length in part]) for part in np.array_split(lengths, 4)]
    for unit in ("samples", "tokens"):
        mixture = MixtureSampler(parts, weights=[4, 3, 2, 1], unit=unit, num_samples=_DOCUMENTS, seed=0)  # type: ignore[arg-type]
        packed = PackingSampler(lengths, _SIZE, sampler=mixture, seed=0)
        speed = best(partial(_plan, packed))
        show(f"best_fit over a mixture of 4 datasets by {unit}", f"{packed.stats().fill:.3%}   {speed:7.0f}")


def _plan(sampler: PackingSampler) -> int:
    return sum(1 for _ in sampler) * _SIZE


def packing(data: TokenDataset) -> None:
    """How fast batches of packed rows are made."""
    print(f"batches of {_BATCH} rows of {_SIZE} tokens: millions of tokens per second of processor time")
    for workers in (0, 2):
        for layout in ("rows", "flat"):
            speed = best(partial(_read, data, workers, layout))
            show(f"gluonloader, {workers} workers, {layout}", f"{speed:.1f}")
    rows = list(PackingSampler(data.lengths, _SIZE, seed=0))
    show(
        "bare loop that copies the same tokens, without labels or positions", f"{best(partial(_copy, data, rows)):.1f}"
    )
    documents = [data[index].astype(np.int64) for index in range(_PEERS_DOCUMENTS)]
    tokens = sum(map(len, documents))
    _show_filled("PackedStream over a list, no workers", tokens, partial(_stream, documents))
    for name, peers in (("grain", _grain_peers), ("trl", _trl_peers)):
        if importlib.util.find_spec(name) is None:
            show(name, "not installed")
            continue
        for what, function in peers(documents).items():
            _show_filled(what, tokens, function)


def _show_filled(what: str, tokens: int, function: Callable[[], int]) -> None:
    """Shows how full rows are, and the speed; `function` returns how many tokens would fit in all rows."""
    speed = best(function)
    show(what, f"{tokens / function():.2%}   {speed:7.1f}")


def _stream(documents: list[NDArray[np.int64]]) -> int:
    order = RandomSampler(len(documents), seed=0)
    with DataLoader(PackedStream(documents, _SIZE, order), _BATCH, batchify_fn=PackRows()) as loader:
        return sum(batch["tokens"].size for batch in loader)


def _read(data: TokenDataset, workers: int, layout: Any) -> int:
    sampler = PackingSampler(data.lengths, _SIZE, seed=0)
    with DataLoader(
        PackedDataset(data), _BATCH, sampler=sampler, batchify_fn=PackRows(layout), num_workers=workers
    ) as loader:
        return sum(batch["tokens"].size for batch in loader)


def _copy(data: TokenDataset, rows: list[Any]) -> int:
    out = np.empty((_BATCH, _SIZE), np.int64)
    for start in range(0, len(rows), _BATCH):
        for row, target in zip(rows[start : start + _BATCH], out, strict=False):
            at = 0
            for document, first, stop in zip(row.documents, row.starts, row.stops, strict=True):
                np.copyto(target[at : at + stop - first], data[document][first:stop])
                at += stop - first
    return len(rows) * _SIZE


def _grain_peers(documents: list[NDArray[np.int64]]) -> dict[str, Callable[[], int]]:
    kinds = "BestFit", "FirstFit"
    return {f"Grain, {kind}Pack, 64 bins, no workers": partial(_grain, documents, kind) for kind in kinds}


def _grain(documents: list[NDArray[np.int64]], kind: str) -> int:
    logging.getLogger("absl").setLevel(logging.ERROR)
    grain = importlib.import_module("grain")
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()
    source = grain.MapDataset.source([{"tokens": tokens} for tokens in documents]).shuffle(seed=0)
    read = source.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    pack = getattr(grain.experimental, f"{kind}PackIterDataset")
    packed = pack(read, length_struct={"tokens": _SIZE}, num_packing_bins=64, seed=0)
    return sum(batch["tokens"].size for batch in packed.batch(_BATCH))


def _trl_peers(documents: list[NDArray[np.int64]]) -> dict[str, Callable[[], int]]:
    datasets = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    source = datasets.Dataset.from_dict({"input_ids": documents}).shuffle(seed=0)
    names = "bfd", "wrapped"
    return {f"trl, pack_dataset, {name}, batches not read": partial(_trl, source, name) for name in names}


def _trl(source: Any, strategy: str) -> int:
    pack = importlib.import_module("trl.data_utils").pack_dataset
    return len(pack(source, _SIZE, strategy, {"keep_in_memory": True, "load_from_cache_file": False})) * _SIZE


def windows(folder: Path) -> None:
    """Windows of a mapped file, beside an array of the same rows."""
    print("64 windows of 1,024 int32 from a mapped file, shuffled, no workers: us per batch, wall")
    np.save(folder / "flat.npy", np.random.default_rng(0).integers(0, 50_000, 20_000_000, np.int32))
    data = TokenDataset(folder / "flat.npy")
    rows = np.load(folder / "flat.npy", mmap_mode="r")[: len(data.windows(1024, 0)) * 1024].reshape(-1, 1024)
    sets = {
        "ArrayDataset over the mapped array": ArrayDataset(rows),
        "TokenDataset.windows(1024, extra=0)": data.windows(1024, 0),
        "TokenDataset.windows(1024), with one more token": data.windows(1024),
    }
    for name, dataset in sets.items():
        with DataLoader(dataset, 64, shuffle=True, seed=0) as loader:
            show(name, f"{min(_epoch(loader) for _ in range(_ROUNDS + 1)):.0f}")


def _epoch(loader: Iterable[Any]) -> float:
    start, count = time.perf_counter(), 0
    for _ in loader:
        count += 1
    return (time.perf_counter() - start) / count * 1e6


def many() -> None:
    """Start, memory and resume with very many documents."""
    print(f"{_MANY:,} documents, their lengths in an array that takes no memory, in a program of its own")
    program = subprocess.run([sys.executable, "-m", "benchmarks.text", "--many"], capture_output=True, text=True)
    for line in program.stdout.splitlines() or [program.stderr]:
        name, _, value = line.partition("\t")
        show(name, value)


def _private_mb() -> float:
    """Memory that belongs to this process alone, and not to a mapped file."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


def _measure_many() -> None:
    lengths = np.broadcast_to(np.int32(420), _MANY)  # takes no memory, as a mapped file
    before, start = _private_mb(), time.perf_counter()
    sampler = PackingSampler(lengths, _SIZE, seed=0)
    next(iter(sampler))
    print(f"first row, wall\t{(time.perf_counter() - start) * 1e3:.0f} ms")
    print(f"private memory\t{_private_mb() - before:.0f} MB")
    state = saved_order(sampler, 0, order_of(sampler, 0))
    print(f"state\t{len(json.dumps(state))} bytes")
    middle = _MANY // 8192 * 1024, _MANY // 8192  # rows before a window in the middle, and the window
    state["checkpoint"] = [middle[1], middle[0]]
    start = time.perf_counter()
    resumed = PackingSampler(lengths, _SIZE, seed=0)
    loading_order(resumed, state)()
    order = order_of(resumed, 0)
    assert order is not None
    order[middle[0] + 1 : middle[0] + 2]
    print(f"resume in the middle, wall\t{(time.perf_counter() - start) * 1e3:.0f} ms")


def main() -> None:
    if sys.argv[1:] == ["--many"]:
        _measure_many()
        return
    print(machine(LOADERS), end="\n\n")
    lengths = lengths_of(_DOCUMENTS)
    planning(lengths)
    with tempfile.TemporaryDirectory() as name:
        rng = np.random.default_rng(0)
        documents = (rng.integers(1, 50_000, length).astype(np.uint16) for length in itertools.islice(lengths, None))
        packing(TokenDataset.write(Path(name) / "corpus", documents))
        windows(Path(name))
    many()


if __name__ == "__main__":
    main()
