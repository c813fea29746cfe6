"""Decides which settings `tune` measures: pure logic over a function that measures one setting.

    each executor, with one worker and with a worker for each core        do samples wait? which executors are fast?
    for each fast executor: concurrency, num_workers                      one short trial for each value
    for the best executor: prefetch, start method
    the simplest and the fastest settings, in turn                        the rest of the time

Each stage changes one argument of the best setting so far. Along `concurrency`, `num_workers` and `prefetch` the search
raises the value while the speed grows; if a higher value is not faster, it lowers the value while the speed does not
fall. "Best" is always the simplest of the settings that are about as fast as the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from .setting import Executor, Setting
from .trial import Trial

Measure = Callable[[Setting, float, float], Trial]  # the setting, seconds of the trial, its limit in seconds

_TIE: Final = 0.05  # speeds that differ by less count as equal
_CONCURRENCY: Final = (1, 4, 8, 16, 32)
_LIKELY_CONCURRENCY: Final = 16  # to start with if samples wait
_WAITS: Final = 0.5  # if workers do not compute for this share of their time, samples wait
_MAY_WAIT: Final = 0.2  # if workers wait for a smaller share, `concurrency` does not help
_PER_CORE: Final = 2  # workers; if samples wait, more `concurrency` costs less than more workers
_TRIAL: Final = 1 / 32  # of the budget, for a usual trial
_LONGEST: Final = 1 / 6  # of the budget, for a trial that is slow or hangs
_LEAST_LIMIT_S: Final = 1.0  # even with a small budget, workers have this time to start
_FINAL: Final = 0.4  # of the budget, for the finalists
_FINALISTS: Final = 3
_PROMISING: Final = 0.5  # an executor whose best speed is a smaller share of the best speed is not tried further
_CLOSE: Final = 0.2  # a setting that is slower than the fastest by more than this is no finalist
_ROUNDS: Final = 5
# A start method hardly changes how fast workers are, so a small gain is usually chance. Only this share of the speed of
# another start method counts.
_OTHER_START_METHOD: Final = 0.8


@dataclass
class Search:
    """Searches for the best setting.

    Args:
        measure: measures a setting; the `took_s` of the trial is at most the limit.
        cores: number of cores that the program may use.
        budget_s: seconds that all trials may take together.
        memory: bytes that the private memory of all worker processes may take together.
        start_methods: start methods to try besides the default.
        threads: whether to try settings with which several threads of one process read samples.

    Attributes:
        trials: the short trial of each setting.
        finals: the trials of the finalists, one for each round.
    """

    measure: Measure
    cores: int
    budget_s: float
    memory: float = float("inf")
    start_methods: Sequence[str] = ()
    threads: bool = True
    trials: dict[Setting, Trial] = field(default_factory=dict)
    finals: dict[Setting, list[Trial]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left_s = self.budget_s

    def run(self) -> Setting | None:
        """Measures settings; returns the best one, or None if every trial had an error."""
        self._compare_executors()
        for executor in self._promising_executors:
            if self._waiting >= _MAY_WAIT:
                self._walk(executor, "concurrency", _CONCURRENCY)
            if executor != "serial":
                self._walk(executor, "num_workers", self._worker_counts)
        best = self._best
        if best is not None and best.num_workers:
            self._walk(best.executor, "prefetch", (None, 8 * best.num_workers, 16 * best.num_workers))
        self._compare_start_methods()
        self._compare_finalists()
        return self._winner

    # -- the stages ----------------------------------------------------------------------------------------------------

    def _compare_executors(self) -> None:
        self._try(Setting())
        self._try(Setting("process", 1))
        # Workers can share a core if they wait.
        most = max(2, self.cores) if self._waiting >= _MAY_WAIT else self.cores
        processes = [Setting("process", count) for count in self._worker_counts if count <= most]
        process = next(filter(self._has_memory, reversed(processes)), processes[0])
        for setting in (process, Setting("thread", most)):
            self._try(setting)
        if self._waiting >= _WAITS:
            for setting in (Setting(), process, Setting("thread", most)):
                self._try(replace(setting, concurrency=_LIKELY_CONCURRENCY))

    @property
    def _promising_executors(self) -> list[Executor]:
        """The executors whose first trials were not much slower than the fastest, the best one first."""
        speeds, found = self._speeds, list[Executor]()
        for setting in sorted(speeds, key=speeds.__getitem__, reverse=True):
            if setting.executor not in found and speeds[setting] >= _PROMISING * max(speeds.values()):
                found.append(setting.executor)
        return found

    def _walk(self, executor: Executor, name: str, values: Sequence[Any]) -> None:
        """Tries larger values of an argument of the best setting of an executor, or else smaller values.

        It goes on while the new setting is the best one of the executor.
        """
        start = self._best_of(executor)
        for step in (1, -1):
            setting = start
            while setting is not None and self._best_of(executor) == setting:
                position = values.index(getattr(setting, name)) + step
                if not 0 <= position < len(values):
                    break
                setting = replace(setting, **{name: values[position]})
                self._try(setting)
            if self._best_of(executor) != start:
                return

    def _compare_start_methods(self) -> None:
        best = self._best
        for method in self.start_methods:
            if best is not None and best.executor == "process":
                self._try(replace(best, start_method=method))

    def _compare_finalists(self) -> None:
        """Measures finalists in turn, since the speed of the machine may change with time."""
        speeds, best = self._speeds, self._best
        if best is None:
            return
        close = [setting for setting, speed in speeds.items() if speed >= (1 - _CLOSE) * max(speeds.values())]
        others = sorted((setting for setting in close if setting != best), key=lambda setting: -speeds[setting])
        finalists = [best, *others][:_FINALISTS]
        slot_s = self._left_s / (len(finalists) * _ROUNDS)
        while len(finalists) > 1:
            round_ = [self._measure(setting, slot_s) for setting in finalists if self._left_s >= slot_s]
            if len(round_) < len(finalists):
                return
            for setting, trial in zip(finalists, round_, strict=True):
                self.finals.setdefault(setting, []).append(trial)

    # -- trials --------------------------------------------------------------------------------------------------------

    def _try(self, setting: Setting) -> None:
        """Measures a setting, unless it is excluded, was measured before, or there is no time or no memory for it."""
        draws = any(trial.draws for trial in self.trials.values())
        if setting.has_threads and (draws or not self.threads):
            return
        seconds = _TRIAL * self.budget_s
        has_time = self._left_s - seconds >= _FINAL * self.budget_s
        if setting not in self.trials and has_time and self._has_memory(setting):
            self.trials[setting] = self._measure(setting, seconds)

    def _measure(self, setting: Setting, seconds: float) -> Trial:
        trial = self.measure(setting, seconds, min(max(_LEAST_LIMIT_S, _LONGEST * self.budget_s), self._left_s))
        self._left_s -= trial.took_s
        return trial

    def _has_memory(self, setting: Setting) -> bool:
        each = max((trial.worker_nbytes for trial in self.trials.values()), default=0)
        return setting.executor != "process" or setting.num_workers == 1 or setting.num_workers * each <= self.memory

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def spent_s(self) -> float:
        """Seconds that all trials have taken, also those of a last round that has no time for all finalists."""
        return self.budget_s - self._left_s

    @property
    def _worker_counts(self) -> list[int]:
        most = _PER_CORE * self.cores
        return sorted({self.cores, *(1 << power for power in range(most.bit_length()) if 1 << power <= most)})

    @property
    def _waiting(self) -> float:
        """The share of their time that workers wait, according to the first trial that has figures."""
        return next((trial.waiting for trial in self.trials.values() if trial.samples_per_s), 0.0)

    @property
    def _speeds(self) -> dict[Setting, float]:
        return {setting: _worth(setting, trial) for setting, trial in self.trials.items() if trial.samples_per_s}

    @property
    def _best(self) -> Setting | None:
        return _simplest(self._speeds)

    def _best_of(self, executor: Executor) -> Setting | None:
        return _simplest({setting: speed for setting, speed in self._speeds.items() if setting.executor == executor})

    @property
    def _winner(self) -> Setting | None:
        """The best finalist; its speed is relative to that of the first finalist in the same round."""
        speeds = dict[Setting, float]()
        for setting, done in self.finals.items():
            rounds = zip(done, next(iter(self.finals.values())), strict=True)
            ratios = [_worth(setting, own) / first.samples_per_s for own, first in rounds if first.samples_per_s]
            if ratios and median(ratios):
                speeds[setting] = median(ratios)
        return _simplest(speeds) or self._best


def _worth(setting: Setting, trial: Trial) -> float:
    return trial.samples_per_s * (1 if setting.start_method is None else _OTHER_START_METHOD)


def _simplest(speeds: Mapping[Setting, float]) -> Setting | None:
    """The simplest of the settings that are about as fast as the fastest."""
    enough = (1 - _TIE) * max(speeds.values(), default=0.0)
    fast = [setting for setting, speed in speeds.items() if speed >= enough]
    return min(fast, key=lambda setting: setting.effort, default=None)
