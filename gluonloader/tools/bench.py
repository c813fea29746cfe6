"""`python -m gluonloader bench`: measures a loader, a perfect loader, and torch's loader with the same dataset.

for each round: for each loader: a run of equal length     so changes in the machine's speed affect all loaders equally
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from itertools import dropwhile
from statistics import median
from typing import Any, Final

import numpy as np

from ..batchify import default_batchify
from ..errors import import_extra, shortened, summary_of, text_of
from ..loader import DataLoader
from ..messages import message
from ..progress import ProgressBar
from ..repeated import RepeatedBatches
from ..statistics.stats import LoaderStats
from ..units import duration, percent
from ..work.usage import NOTHING_SPENT, process_resources
from .arguments import add_factory, add_json, add_seconds, add_step, describe, keywords
from .factory import load_factory
from .printing import show, table
from .tuning.of_torch import torchs_arguments
from .tuning.speed import Step, TimedRun, endless, run

_DESCRIPTION: Final = (
    "Measures the speed of a loader, and shows where its time goes. It also measures a perfect loader, "
    "which repeats batches from memory: with --step, this shows what a faster loader can gain."
)
_EXAMPLES: Final = """\
  python -m gluonloader bench train:make            measures the loader that make() in train.py returns:
                                                      def make(**options):
                                                          return DataLoader(dataset, 64, **options)
  python -m gluonloader bench train:make --with "num_workers=2, concurrency=16"
  python -m gluonloader bench train:make --step 0.05         for a GPU that takes 50 ms for a batch
  python -m gluonloader bench train:make --against torch     compares it with torch's DataLoader
"""
_ROUNDS: Final = 5
_ALONE: Final = 0.3  # share of the time for the run of the loader alone
_EQUAL: Final = 0.98  # a perfect loader that is less than 2 % faster counts as equal
_TORCH_PREFETCH: Final = 2  # batches that each worker of torch makes ahead, by default
_OURS: Final = "this loader"
_PERFECT: Final = "perfect loader"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and the option `run`: a function that returns the exit status."""
    describe(parser, _DESCRIPTION, _EXAMPLES)
    add_factory(parser)
    add_seconds(parser, 20)
    text = "keyword arguments for the factory, for example the arguments that `tune` has printed"
    parser.add_argument("--with", type=keywords, default={}, dest="arguments", metavar="ARGUMENTS", help=text)
    add_step(parser)
    text = "also measure torch's DataLoader with the same dataset, order, number of workers and batchify function; "
    text += "torch's default_collate replaces the default batchify function"
    parser.add_argument("--against", choices=["torch"], help=text)
    add_json(parser)
    parser.set_defaults(run=bench)


@message(frozen=True, slots=True)
class Speed:
    """The speed of one loader.

    Attributes:
        name: which loader it is.
        batches_per_s, low, high: the median, the smallest and the largest of the rounds.
        samples_per_s: samples per second.
        mb_per_s: megabytes (2^20 bytes) of batches per second.
        first_batch_s: seconds from the call that makes the loader to its first batch; None for the perfect loader.
        waited: share of its time that the program waited, from 0 to 1.
        wait_p50_s, wait_p90_s, wait_p99_s: percentiles of the seconds that the program waited for a batch.
        ratio, ratio_low, ratio_high: the speed of the user's loader divided by the speed of this loader in the same
            round; the median, the smallest and the largest ratio.
    """

    name: str
    batches_per_s: float
    low: float
    high: float
    samples_per_s: float
    mb_per_s: float
    first_batch_s: float | None
    waited: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    ratio: float
    ratio_low: float
    ratio_high: float


@message(frozen=True, slots=True)
class Bench:
    """What `bench` has measured.

    Attributes:
        loader: the loader as text.
        speeds: the speed of each loader; the user's loader comes first, then the perfect loader.
        rounds: number of rounds.
        step_s: seconds that the simulated program takes for a batch.
        program_cpu_s, program_faults: seconds of computing and page faults of the program, for each batch.
        worker_cpu_s, worker_faults: the same for all worker processes together; workers that are threads count as part
            of the program.
        why: why the loader uses its executor.
        advice: what to change.
        failed: the errors of loaders that were to be compared, and whose speeds are missing.
    """

    loader: str
    speeds: tuple[Speed, ...]
    rounds: int
    step_s: float
    program_cpu_s: float
    program_faults: float
    worker_cpu_s: float
    worker_faults: float
    why: str
    advice: str
    failed: tuple[str, ...] = ()


class _LoaderFailed(ValueError):
    """A loader that is measured has raised an error."""


@dataclass(slots=True)
class _Contender:
    """A loader that is measured in turn with others; `batches` yields its batches, epoch after epoch."""

    name: str
    batches: Iterator[Any]
    window: int
    first_batch_s: float | None = None
    runs: list[TimedRun] = field(default_factory=list)

    def run(self, seconds: float, step: Step) -> None:
        # The batches in flight were made while other loaders ran, so a whole window of them does not count.
        deadline = time.perf_counter() + 2 * seconds
        self.runs.append(run(self.batches, seconds, step, workers=self.window, window=self.window, deadline=deadline))


def bench(options: argparse.Namespace) -> int:
    """Measures the loaders, and prints the result."""
    if options.against:
        import_extra("torch", "torch")
    torch_data = import_extra("torch.utils.data", "torch") if options.against else None
    with redirect_stdout(sys.stderr):  # for what the module of the factory prints
        result = _measure(options, torch_data)
    show(json.dumps(asdict(result), indent=2) if options.json else as_text(result))
    return 1 if result.failed else 0


def _measure(options: argparse.Namespace, torch_data: Any) -> Bench:
    factory, step = load_factory(options.factory), Step(options.step, options.busy)
    started = time.perf_counter()
    with ProgressBar(1 + _ROUNDS, "rounds") as progress, _made(factory, options) as loader:
        ours = _contender(_OURS, loader, loader.prefetch, started)
        resources = process_resources()
        ours.run(_ALONE * options.seconds, step)
        stats, spent = loader.stats(), process_resources()
        progress.advance(1, "")
        ours.runs.clear()
        contenders, failed = [ours, _contender(_PERFECT, RepeatedBatches(loader), 1, None)], list[str]()
        if torch_data is not None:
            try:
                contenders.append(_torch(torch_data, loader))
            except _LoaderFailed as error:
                failed.append(str(error))
        for _ in range(_ROUNDS):
            for contender in list(contenders):
                try:
                    contender.run((1 - _ALONE) * options.seconds / _ROUNDS / len(contenders), step)
                except _LoaderFailed as error:
                    if contender.name in (_OURS, _PERFECT):
                        raise
                    contenders.remove(contender)
                    failed.append(str(error))
            progress.advance(1, "")
        work = stats.work if stats.executor in ("process", "ray") else NOTHING_SPENT
        return Bench(
            loader=repr(loader),
            speeds=tuple(_speed(contender, ours, stats) for contender in contenders),
            rounds=_ROUNDS,
            step_s=options.step,
            program_cpu_s=(spent.cpu_ns - resources.cpu_ns) * 1e-9 / stats.batches,
            program_faults=(spent.page_faults - resources.page_faults) / stats.batches,
            worker_cpu_s=work.cpu_s / max(1, work.batches),
            worker_faults=work.page_faults / max(1, work.batches),
            why=stats.why,
            advice=stats.advice,
            failed=tuple(failed),
        )


def _made(factory: Callable[..., DataLoader[Any]], options: argparse.Namespace) -> DataLoader[Any]:
    try:
        return factory(**options.arguments)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{options.factory} raised {summary_of(error)}") from error


def _contender(name: str, loader: Iterable[Any], window: int, started: float | None) -> _Contender:
    batches = _batches(name, loader)
    next(batches)
    first_batch_s = None if started is None else time.perf_counter() - started
    return _Contender(name, batches, max(1, window), first_batch_s)


def _batches(name: str, loader: Iterable[Any]) -> Iterator[Any]:
    """Yields batches without end; an error names the loader, and where the data raised it."""
    try:
        yield from endless(loader)
    except Exception as error:
        raise _LoaderFailed(f"{name} raised {_summary_of(error)}") from error


def _summary_of(error: Exception) -> str:
    """The type and the text of an error; of one from a worker of torch, those of the original error.

    The text of an error from a worker of torch is a whole traceback, which ends with the original error.
    """
    _, is_from_worker, traceback = text_of(error).partition("Original Traceback")
    if not is_from_worker:
        return summary_of(error)
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    rest = dropwhile(lambda line: line.startswith("    "), lines[frames[-1] + 1 if frames else 1 :])
    return shortened(" ".join(" ".join(rest).split()))


def _torch(torch_data: Any, loader: DataLoader[Any]) -> _Contender:
    """A DataLoader of torch with the same dataset, order and number of workers."""
    workers, arguments = loader.num_workers, torchs_arguments(loader)
    if arguments is None:
        if loader.batch_sampler is None:
            raise ValueError("--against torch: it needs a dataset with __getitem__, but this dataset is iterable")
        collate = None if loader.batchify_fn is default_batchify else loader.batchify_fn
        arguments = {"dataset": loader.dataset, "batch_sampler": loader.batch_sampler, "collate_fn": collate}
    if not workers:  # torch refuses them
        arguments.update(prefetch_factor=None, multiprocessing_context=None, timeout=0)
    arguments.update(num_workers=workers, persistent_workers=workers > 0)
    started = time.perf_counter()
    try:
        theirs = torch_data.DataLoader(**arguments)
    except Exception as error:
        raise ValueError(f"torch raised {summary_of(error)}") from error
    return _contender("torch", theirs, _TORCH_PREFETCH * workers, started)


def _speed(contender: _Contender, ours: _Contender, stats: LoaderStats) -> Speed:
    rates = [measured.rate for measured in contender.runs]
    ratios = [own.rate / other.rate for own, other in zip(ours.runs, contender.runs, strict=True)]
    waits = [wait for measured in contender.runs for wait in measured.waits]
    p50, p90, p99 = np.percentile(waits, [50, 90, 99]).tolist()
    rate = median(rates)
    return Speed(
        name=contender.name,
        batches_per_s=rate,
        low=min(rates),
        high=max(rates),
        samples_per_s=rate * stats.samples / stats.batches,
        mb_per_s=rate * stats.nbytes / stats.batches / 2**20,
        first_batch_s=contender.first_batch_s,
        waited=sum(waits) / sum(measured.ends[-1] - measured.ends[0] for measured in contender.runs),
        wait_p50_s=p50,
        wait_p90_s=p90,
        wait_p99_s=p99,
        ratio=median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
    )


def as_text(result: Bench) -> str:
    """The result as a table and sentences."""
    rows: list[tuple[str, ...]] = [
        ("", "batches/s", "from", "to", "samples/s", "MB/s", "first batch", "wait p50", "p90", "p99", "waited")
    ]
    for speed in result.speeds:
        first = "-" if speed.first_batch_s is None else duration(speed.first_batch_s)
        rates = [f"{rate:,.1f}" for rate in (speed.batches_per_s, speed.low, speed.high)]
        waits = [duration(wait) for wait in (speed.wait_p50_s, speed.wait_p90_s, speed.wait_p99_s)]
        sizes = f"{speed.samples_per_s:,.0f}", f"{speed.mb_per_s:,.1f}"
        rows.append((speed.name, *rates, *sizes, first, *waits, percent(speed.waited)))
    return "\n".join([result.loader, "", *table(rows), "", *_sentences(result)])


def _sentences(result: Bench) -> Iterator[str]:
    perfect = result.speeds[1]
    if not result.step_s:
        yield "Pass --step to see how fast your program would be with a perfect loader."
    elif perfect.ratio < _EQUAL:
        yield f"With a perfect loader, your program would be {1 / perfect.ratio:.2f} times as fast."
    else:
        yield "With a perfect loader, your program would not be faster."
    for text in result.failed:
        yield f"{text}; so there is no comparison with it."
    for other in result.speeds[2:]:
        spread = f"{other.ratio_low:.2f} to {other.ratio_high:.2f} in {result.rounds} rounds"
        yield f"This loader is {other.ratio:.2f} times as fast as {other.name}'s ({spread})."
    text = f"For each batch: {duration(result.program_cpu_s)} of computing and {result.program_faults:,.1f} page faults"
    if result.worker_cpu_s:
        workers = f"{duration(result.worker_cpu_s)} and {result.worker_faults:,.1f} in worker processes"
        yield f"{text} in the program, {workers}."
    else:
        yield f"{text} in the program."
    if result.advice:
        yield result.advice
