"""Compares the choice of `gluonloader.tune` with a full sweep over all settings.

The sweep measures every setting of a grid for a short time. Then the fastest settings of the sweep and the choice of
`tune` are measured in turn. The table shows their speeds, and these as multiples of the speed of the choice.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from gluonloader import ArrayDataset, DataLoader, tune
from gluonloader.limits import available_cores
from gluonloader.tools.tuning.setting import Executor, Setting, text_of
from gluonloader.tools.tuning.speed import Step
from gluonloader.tools.tuning.trial import measure

from .datasets import Recycled, photos
from .harness import Figures, Table, Topic
from .report import size_of

MEMORY: Final = "2GB"
_FASTEST: Final = 6  # settings of the sweep that are measured again
_LIMIT_S: Final = 20.0
_LENGTH: Final = 100_000  # samples


class Computing:
    """Samples that take about 0.3 ms of Python code each."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        total = 0
        for number in range(6000):
            total += number & index
        return np.full(16, total, np.float32)


class Waiting:
    """Samples that wait for 10 ms each, as for a network."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return np.full(16, index, np.float32)


def _digits() -> Any:
    return ArrayDataset(np.zeros((60_000, 28, 28), np.float32), np.zeros(60_000, np.int64))


def _images() -> Any:
    return Recycled(list(np.random.default_rng(0).random((64, 3, 224, 224), np.float32)), _LENGTH)


@dataclass(frozen=True)
class Data:
    """A dataset, its batch size, and which concurrency the sweep tries."""

    make: Callable[[], Any]
    batch_size: int
    concurrency: Sequence[int] = (1, 4)

    def factory(self) -> Callable[..., DataLoader[Any]]:
        """Returns the function that `tune` gets."""
        dataset = self.make()
        return lambda **options: DataLoader(dataset, self.batch_size, **{"seed": 0, **options})

    def settings(self, cores: int) -> Iterator[Setting]:
        """Yields all settings of the sweep."""
        yield from (Setting(concurrency=concurrency) for concurrency in self.concurrency)
        executors: Sequence[Executor] = ("thread", "process")
        workers = sorted({1, cores, 2 * cores})
        for executor, count, concurrency, prefetch in product(executors, workers, self.concurrency, (None, 16)):
            yield Setting(executor, count, concurrency, prefetch)


DATA: Final[Mapping[str, Data]] = {
    "computing": Data(Computing, 32),
    "waiting": Data(Waiting, 32, (1, 4, 8, 16, 32)),
    "memory": Data(_digits, 256),
    "large": Data(_images, 64),
    "jpeg": Data(lambda: photos(500, 375, 200)(_LENGTH), 32),
}


def run(options: Namespace) -> Iterator[str | Table]:
    """Yields what `tune` chose, and a table of the choice and the fastest settings of the sweep, for each dataset."""
    for name in options.names:
        factory = DATA[name].factory()
        started = time.perf_counter()
        tuning = tune(factory, options.budget, MEMORY)
        took_s = time.perf_counter() - started
        nbytes = max(done.shared_nbytes for done in tuning.trials)
        chosen = tuning.best.arguments
        yield f"{name}: tune chose {text_of(chosen)} in {took_s:.1f} s, with {size_of(nbytes)} of shared memory"
        settings = list(DATA[name].settings(available_cores()))
        swept = [(_speed(factory, _limited(setting), options.trial), _limited(setting)) for setting in settings]
        swept.sort(key=lambda found: found[0]["samples per s"], reverse=True)
        rivals = [chosen, *(arguments for _, arguments in swept[:_FASTEST] if arguments != chosen)]
        rows = {text_of(arguments): partial(_speed, factory, arguments, options.trial) for arguments in rivals}
        title = f"{name}: the choice, and the fastest of {len(settings)} settings"
        yield Table(title, rows, {"samples per s": "{:,.0f}".format}, base=text_of(chosen))


def _speed(factory: Callable[..., DataLoader[Any]], arguments: Mapping[str, Any], seconds: float) -> Figures:
    return {"samples per s": measure(factory, arguments, seconds, _LIMIT_S, Step()).samples_per_s}


def _limited(setting: Setting) -> dict[str, Any]:
    limit = {"memory_limit": MEMORY} if setting.executor == "process" else {}
    return {**setting.arguments, **limit}


TOPIC: Final = Topic(
    run,
    rounds=7,
    names=DATA,
    options={"budget": (60.0, "seconds for tune"), "trial": (1.0, "seconds for each setting of the sweep")},
)
