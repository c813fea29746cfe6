"""`tune`: runs the search on the user's data, and describes what it found."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from ...arguments.arguments import default_start_method
from ...checks import check_flags, check_function, check_number, parse_bytes
from ...limits import available_cores, available_memory
from ...units import duration, percent, size
from ..pictures import draw_trials
from ..printing import table
from .of_torch import adapted
from .search import Search
from .setting import Setting, text_of
from .speed import Step
from .trial import Factory, Trial, measure

_MEMORY: Final = 0.8  # share of the free memory that the private memory of worker processes may take
_THREADS: Final = (
    "With this, several threads read samples at the same time: the dataset must allow that,\n"
    "and draw random numbers from gluonloader.get_rng(). If it does not, run tune with\n"
    "threads=False (--no-threads)."
)
_BUSY: Final = 0.5  # share of the cores; a higher load average means that other programs compute
_SHARED: Final = 0.2  # the share of their time that workers wait for a core, if they do not have their cores alone
_LEAST_S: Final = 1.0  # a shorter budget is not enough for one trial


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `tune` has found; `print` shows it as a table.

    Attributes:
        best: the trial with the best arguments: of the settings that were compared again at the end, the simplest one
            that is less than 5 % slower than the fastest one.
        trials: all trials: first those that were compared in turn at the end, then all others, each with the fastest
            first; trials with an error last. The figures of the first ones are those of this comparison.
        took_s: seconds that all trials took.
        load: the load average of the machine before the first trial, if it was so high that the figures may be wrong;
            otherwise 0.
    """

    best: Trial
    trials: tuple[Trial, ...]
    took_s: float
    load: float = 0.0

    @property
    def line(self) -> str:
        """The best keyword arguments as text, to paste into a call of `DataLoader`."""
        return text_of(self.best.arguments)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws the speed of each trial.

        Args:
            path: the image file to write; its ending chooses the format: .png, .svg or .pdf.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        draw_trials(self.trials, self.best, path)

    def __str__(self) -> str:
        titles = "samples/s", "from", "to", "runs", "first batch", "shared memory", "arguments"
        rows: list[tuple[str, ...]] = [("", *titles)]
        for trial in self.trials:
            if not trial.error:
                speeds = [f"{speed:,.0f}" for speed in (trial.samples_per_s, trial.low, trial.high, trial.runs)]
                memory = size(trial.shared_nbytes) if trial.shared_nbytes else "-"
                mark = "*" if trial is self.best else ""
                rows.append((mark, *speeds, duration(trial.first_batch_s), memory, text_of(trial.arguments)))
        lines = table(rows, texts=1)
        errors = [f"{text_of(trial.arguments)}: {trial.error}" for trial in self.trials if trial.error]
        if errors:
            lines += ["", "Failed:", *errors]
        stuck = max((trial.stuck_s for trial in self.trials), default=0.0)
        if stuck:
            slow = f"Some trials were ended at a batch that took longer than {duration(stuck)}, and measure the batches"
            lines += ["", f"{slow} before it. loader.stats().slowest names the slowest batch of an epoch."]
        lines += ["", f"Best, found in {duration(self.took_s)}: {self.line}"]
        if {"executor", "concurrency"} & self.best.arguments.keys():
            lines.append(_THREADS)
        if self.best.waiting_for_core > _SHARED:
            waited = f"With this, workers waited for a core {percent(self.best.waiting_for_core)} of the time"
            lines.append(f"{waited}: your program or other programs used the cores, too.")
        if self.load:
            busy = f"The load average of this machine was {self.load:.1f} before the first trial"
            lines.append(f"{busy}: run tune again when no other program computes.")
        return "\n".join(lines)


def tune(
    factory: Factory,
    budget_s: float = 60.0,
    memory: int | str | None = None,
    step_s: float = 0.0,
    busy: bool = False,
    threads: bool = True,
    on_trial: Callable[[Trial], object] | None = None,
) -> Tuning:
    """Measures which arguments of `DataLoader` are the fastest for your data; see `docs/speed.md`.

    It varies `num_workers`, `executor`, `concurrency`, `prefetch` and `start_method`. Each trial runs in a child
    process that is forked from this one, so call `tune` before the program uses a GPU or starts threads.

    Args:
        factory: a function that passes its keyword arguments to a new `DataLoader`, and returns this loader; or a
            function that returns a loader of torch or of `gluonloader.torch`. The results are then arguments of
            `gluonloader.torch.DataLoader`.
        budget_s: seconds that all trials may take together. A trial that takes longer than a sixth of this is ended.
        memory: the maximum shared memory for batches, in bytes or as text ("256MB"); None for no limit. It becomes the
            `memory_limit` of loaders with worker processes.
        step_s: seconds that your program takes for each batch; with 0, trials measure the loader alone.
        busy: whether your program computes during these seconds, as training on a CPU does. With False it waits, as for
            a GPU.
        threads: whether to try `executor="thread"` and `concurrency`, with which several threads of a process read
            samples. Pass False if the dataset does not allow that, for example because it seeks in a file.
        on_trial: a function that is called with each `Trial` when it is done.

    Raises:
        ValueError: an argument is wrong; or the factory does not pass on its keyword arguments; or no trial yielded
            batches, and the text contains the error of the first one.

    >>> from gluonloader import DataLoader
    >>> tuning = tune(lambda **options: DataLoader(range(1000), 10, **options), budget_s=2)
    >>> "num_workers" in tuning.best.arguments, tuning.line.startswith("num_workers=")
    (True, True)
    """
    check_function("factory", factory)
    factory = adapted(factory)
    check_flags(busy=busy, threads=threads)
    check_number("budget_s", budget_s, _LEAST_S, f"must be a number of seconds >= {_LEAST_S:g}")
    check_number("step_s", step_s, 0, "must be a number of seconds >= 0")
    limit, step, end = parse_bytes(memory), Step(step_s, bool(busy)), time.perf_counter() + budget_s

    def measure_setting(setting: Setting, seconds: float, limit_s: float) -> Trial:
        arguments = setting.arguments
        if limit is not None and setting.executor == "process":
            arguments["memory_limit"] = memory
        trial = measure(factory, arguments, seconds, min(limit_s, end - time.perf_counter()), step)
        if on_trial is not None:
            on_trial(trial)
        return trial

    default = default_start_method()
    methods = [method for method in multiprocessing.get_all_start_methods() if method != default]
    memory_of_workers = _MEMORY * available_memory()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    search = Search(measure_setting, available_cores(), budget_s, memory_of_workers, methods, bool(threads))
    return _result(search, search.run(), load if load > _BUSY * search.cores else 0.0)


def _result(search: Search, best: Setting | None, load: float) -> Tuning:
    every = {setting: _merged([trial, *search.finals.get(setting, [])]) for setting, trial in search.trials.items()}
    if best is None:
        first = next(iter(every.values()))
        raise ValueError(f"no trial yielded batches; the first one, with {text_of(first.arguments)}: {first.error}")
    ordered = sorted(every.values(), key=lambda trial: (bool(trial.error), trial.runs == 1, -trial.samples_per_s))
    return Tuning(every[best], tuple(ordered), search.spent_s, load)


def _merged(trials: list[Trial]) -> Trial:
    """One trial: with the medians of the rounds of the last stage, or with the figures of the only trial."""
    took_s = sum(trial.took_s for trial in trials)
    rounds = [trial for trial in trials[1:] if not trial.error]
    if not rounds:
        return replace(trials[0], took_s=took_s)
    names = ("samples_per_s", "low", "high", "first_batch_s")
    middle = {name: median(getattr(trial, name) for trial in rounds) for name in names}
    middle["low"] = min(middle["low"], middle["samples_per_s"])  # medians of different figures
    middle["high"] = max(middle["high"], middle["samples_per_s"])
    return replace(rounds[-1], took_s=took_s, runs=len(rounds), **middle)
