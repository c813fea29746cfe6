"""Reads samples from everywhere in an epoch, in this process and for a short time, and finds the slowest one.

    batch sampler --> some hundred batches, evenly spread --> one sample of each, then another one of each, ...

So all samples of a small dataset are read, and of a large one as many as the time allows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any, Final

import numpy as np

from ...batchify import Gathered
from ...errors import summary_of
from ...indices import Keys, as_list
from ...messages import message
from ...randomness import batch_seed, set_current_seed
from ...sampler.base import iterate
from ...sampler.passes import as_keys
from ...work.caught import NO_PRECAUTIONS
from ...work.maker import BatchMaker
from ...work.task import Task
from ...work.usage import process_resources
from .time_limit import OutOfTime

_BATCHES: Final = 1000  # from at most so many, samples are read
_DRAWING: Final = 0.5  # the share of the time for the order, which a sampler may draw slowly or without end


@message(frozen=True, slots=True)
class Everywhere:
    """The samples that were read from everywhere in an epoch.

    Attributes:
        samples: how many.
        of: from how many samples of the epoch they were chosen.
        whole: whether these are all; otherwise they are the first ones, since the sampler is slow or has no end.
        usual_s: the median of their times; 0 if none was read. The times are without waiting for a core.
        slowest_s, slowest: the time of the slowest sample, and its name.
        arrived: whether it arrived; otherwise it was interrupted.
        error: of a sample or of the sampler, after which no more samples were read; "" if there was none.
    """

    samples: int = 0
    of: int = 0
    whole: bool = True
    usual_s: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    arrived: bool = True
    error: str = ""


class EverywhereReader:
    """Reads samples of a map-style dataset one at a time.

    Args:
        maker: the worker; `read` is called where it runs.
        batch_sampler: of the loader; one pass is drawn from it.
        seed: of the loader.
    """

    def __init__(self, maker: BatchMaker, batch_sampler: Iterable[Any], seed: int) -> None:
        self._maker, self._batch_sampler, self._seed = maker, batch_sampler, seed
        self._times, self._slowest = list[float](), (0.0, "")
        self._of, self._whole = 0, False
        self._now: tuple[float, str] | None = None  # when the read of a sample started, and the name of the sample

    def read(self, seconds: float) -> Everywhere:
        """Reads samples for these seconds; a sample that takes longer is interrupted if an OutOfTime is raised."""
        error = ""
        try:
            self._read_until(time.perf_counter() + seconds, _DRAWING * seconds)
        except OutOfTime:
            pass
        except Exception as raised:
            self._now, error = None, summary_of(raised)
        slowest, arrived = self._slowest, True
        if self._now is not None:  # interrupted; if it has hardly started, it is not slow
            interrupted = time.perf_counter() - self._now[0], self._now[1]
            slowest, arrived = max(slowest, interrupted), interrupted <= slowest
        usual_s = median(self._times) if self._times else 0.0
        return Everywhere(len(self._times), self._of, self._whole, usual_s, *slowest, arrived, error)

    def _read_until(self, end: float, drawing_s: float) -> None:  # see NOTE [loops and try] in interrupts.py
        for task in _single(self._drawn(end - drawing_s), self._seed):
            waited_ns, start = process_resources().core_wait_ns, time.perf_counter()
            if start > end:
                return
            self._now = start, task.sample(0)
            set_current_seed(batch_seed(task.seed, task.epoch, task.batch))
            assert task.indices is not None
            samples = self._maker.read(task, task.indices, NO_PRECAUTIONS)
            if isinstance(samples, Gathered):
                samples.batch()  # this reads them
            took_s = time.perf_counter() - start
            took_s -= min(took_s, (process_resources().core_wait_ns - waited_ns) / 1e9)
            self._times.append(took_s)
            self._slowest, self._now = max(self._slowest, (took_s, self._now[1])), None

    def _drawn(self, end: float) -> list[tuple[int, Keys]]:
        """Numbers of batches, and the keys of their samples; counts all samples that are drawn until the time ends."""
        found, step = list[tuple[int, Keys]](), 1
        for number, part in enumerate(iterate(self._batch_sampler)):
            if time.perf_counter() > end:
                return found
            keys = as_keys(part)
            self._of += len(keys)
            if number % step == 0:
                found.append((number, keys))
            if len(found) > _BATCHES:
                found, step = found[::2], 2 * step
        self._whole = True
        return found


def _single(batches: list[tuple[int, Keys]], seed: int) -> Iterator[Task]:
    """Tasks of one sample each: first a random one of each batch, then another one of each."""
    rng = np.random.default_rng(0)
    shuffled = [batches[place] for place in rng.permutation(len(batches))]
    rows = [rng.permutation(len(keys)) for _, keys in shuffled]
    for turn in range(max(map(len, rows), default=0)):
        for (number, keys), order in zip(shuffled, rows, strict=True):
            if turn < len(order):
                row = order[turn]
                yield Task(0, number, seed, as_list(keys[row : row + 1]))
