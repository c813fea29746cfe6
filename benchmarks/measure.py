"""Times the loaders of a case in rounds. A round times an epoch of each loader.

Each loader has a separate program, so that the imports of one library cannot influence another library. A program is
forked from this one with the same dataset, and is stopped while another loader is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import gluonloader.mxnet

from .cases import Case
from .harness import Figures, in_rounds
from .loaders import Loader
from .programs import Program

UNMEASURED: Final = "not measured in this case"
LIMITS: Final = ("bare loop", "plain copy")  # the bare loop uses one core, the plain copy uses a core for each worker


@dataclass
class Result:
    """The seconds per batch of a loader in each round; or `missing`, why it was not timed."""

    loader: str
    missing: str | None = None
    peer: str | None = None
    workers: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.times)

    def ratio_to(self, other: Result) -> float:
        """Returns the time as a multiple of the time of `other`: the median of the ratios of each round."""
        return statistics.median(mine / its for mine, its in zip(self.times, other.times, strict=True))

    def share_of(self, limit: Result, base: Result) -> float:
        """Returns the speed as a share of the limit, which is scaled to as many cores as the base has workers."""
        return limit.ratio_to(self) * max(1, limit.workers) / max(1, base.workers)


def measure(case: Case, loaders: Sequence[Loader], workers: int, rounds: int) -> list[Result]:
    """Returns a result for each loader. The first epochs of a loader warm it up, and are not counted."""
    results = {
        loader.name: Result(loader.name, _reason(loader, case), loader.peer, loader.workers(case, workers))
        for loader in loaders
    }
    if all(result.missing for result in results.values()):
        return list(results.values())
    dataset = case.dataset()
    with ExitStack() as stack:
        rows = {}
        for loader in loaders:
            result = results[loader.name]
            if result.missing is None:
                program = stack.enter_context(Program(epochs, case, loader, dataset, result.workers, pauses=True))
                result.missing = program.answer()
                if result.missing is None:
                    rows[loader.name] = _timing(program)
        for name, figures in in_rounds(rows, rounds).items():
            results[name].times = [each["time"] for each in figures]
    return list(results.values())


def _reason(loader: Loader, case: Case) -> str | None:
    return case.absence() if loader.name in case.contenders else UNMEASURED


def _timing(program: Program) -> Callable[[], Figures]:
    return lambda: {"time": program.step()}


def epochs(case: Case, loader: Loader, dataset: Any, workers: int) -> Iterator[Any]:
    """The steps of a loader's program: first why it cannot be timed or None, then the seconds per batch of an epoch."""
    gluonloader.mxnet.patch_numpy()  # this must run before MXNet is imported
    missing = loader.absence() or loader.limitation(case)
    if missing is not None:
        yield missing
        return
    with loader.open(case, dataset, workers) as run:
        for _ in range(loader.warm_up):
            run.epoch()
        yield None
        while True:
            yield run.epoch() / case.batches
