"""Ray: compares workers that are actors of Ray with local processes and with Ray Data, all on this machine.

python -m benchmarks.actors
python -m benchmarks.actors jpeg --rounds 9

jpeg    decodes, crops and normalizes images, in actors and in local processes; jpeg-large: larger images
mnist   small samples in memory, in actors and by Ray Data; a batch takes less time to make than to send

All loaders of a case stay open, and each round times an epoch of each of them. Ray and its processes run all the time.
Ray Data reads mnist in two ways: row by row, which is the same work as a dataset with `__getitem__`; and from an array
that lies in Ray's store already, which is as little work as possible.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from gluonloader import DataLoader

from .cases import CASES, Case
from .report import machine

Epoch = Callable[[], Iterable[Any]]


def main() -> None:
    """Runs the cases that the arguments name."""
    arguments = _parse()
    version = importlib.metadata.version("ray")
    print(f"{machine([])}, Ray {version}\n{arguments.workers} workers, {arguments.rounds} rounds", flush=True)
    for name in arguments.cases or _CASES:
        case = CASES[name]
        dataset = case.dataset()  # before Ray starts, since this forks
        with ExitStack() as stack:
            epochs = _CASES[name](case, dataset, arguments.workers, stack)
            print_table(case, measure(case, epochs, arguments.rounds))


def _jpeg(case: Case, dataset: Any, workers: int, stack: ExitStack) -> dict[str, Epoch]:
    return {name: _loader(dataset, case, workers, name, stack) for name in ("process", "ray")}


def _mnist(case: Case, dataset: Any, workers: int, stack: ExitStack) -> dict[str, Epoch]:
    samples = [dataset[index] for index in range(len(dataset))]
    epochs = {name: _loader(samples, case, workers, name, stack) for name in ("process", "ray")}
    data: Any = importlib.import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False

    def read(row: dict[str, Any]) -> dict[str, Any]:
        image, label = samples[row["id"]]
        return {"image": image, "label": label}

    rows = data.range(len(samples)).map(read)
    stored = data.from_items([{"image": image, "label": label} for image, label in samples]).materialize()
    return {
        **epochs,
        "Ray Data, by rows": lambda: rows.iter_batches(batch_size=case.batch_size, prefetch_batches=2 * workers),
        "Ray Data, stored": lambda: stored.iter_batches(batch_size=case.batch_size, prefetch_batches=2 * workers),
    }


_CASES: Final[dict[str, Callable[[Case, Any, int, ExitStack], dict[str, Epoch]]]] = {
    "jpeg": _jpeg,
    "jpeg-large": _jpeg,
    "mnist": _mnist,
}
_WARM_UP: Final = 3  # epochs of each loader that are not counted; the pages of Ray's store are slow at their first use


def _loader(dataset: Any, case: Case, workers: int, executor: Any, stack: ExitStack) -> Epoch:
    loader = stack.enter_context(DataLoader(dataset, case.batch_size, num_workers=workers, executor=executor))
    return lambda: loader


def measure(case: Case, epochs: dict[str, Epoch], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds per batch of each loader in each round, after epochs that are not counted."""
    times: dict[str, list[float]] = {name: [] for name in epochs}
    for number in range(rounds + _WARM_UP):
        for name, epoch in epochs.items():
            start, count = time.perf_counter(), 0
            for _ in epoch():
                count += 1
            if count != case.batches:
                raise RuntimeError(f"{name}: an epoch should have {case.batches} batches, but it had {count}")
            if number >= _WARM_UP:
                times[name].append((time.perf_counter() - start) / count)
    return times


def print_table(case: Case, times: dict[str, list[float]]) -> None:
    """Prints the median time of each loader, and by how much the time of "ray" is shorter in the same round."""
    print(f'\n{case.name}: {case.what}\n| | ms per batch | spread | speed of `executor="ray"` relative to it |')
    print("|---|---:|---:|---:|")
    for name, values in times.items():
        ratio = statistics.median(its / mine for its, mine in zip(values, times["ray"], strict=True))
        spread = f"{min(values) * 1e3:.2f} to {max(values) * 1e3:.2f}"
        print(f"| {name} | {statistics.median(values) * 1e3:.2f} | {spread} | {ratio:.2f} |", flush=True)


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", choices=[[], *_CASES], metavar="case", help=f"{', '.join(_CASES)} (default: all)"
    )
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default 2)")
    parser.add_argument("--rounds", type=int, default=7, help="timed epochs of each loader (default 7)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
