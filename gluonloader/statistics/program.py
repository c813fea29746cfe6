"""What the loaders of a whole program have done, for the line that `python -m gluonloader.torch` prints at its end.

`watch` --> each epoch that starts: `note` --> `watched`: a `LoaderStats` for each loader
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from ..work.usage import NOTHING_SPENT, Usage, WorkerStats
from .tally import Tally

if TYPE_CHECKING:
    from .stats import LoaderStats

numbers = count()  # one for each loader of the program
_loaders: dict[int, _Watched] | None = None


@dataclass(slots=True)
class _Watched:
    """A loader and its counts. It keeps neither the loader nor its workers alive."""

    name: str
    summarize: Callable[[Tally, Usage, WorkerStats], LoaderStats]
    tally: Tally  # of its newest workers
    usage: Usage
    sums: Tally = field(default_factory=Tally)  # of those before
    spent: WorkerStats = NOTHING_SPENT

    def renew(self, tally: Tally, usage: Usage) -> None:
        """Notes who makes its batches now."""
        if usage is not self.usage:
            self.spent = sum(self.usage.fold().values(), self.spent)
            self.usage = usage
        if tally is not self.tally:
            self.sums.absorb(self.tally)
            self.tally = tally

    def stats(self) -> LoaderStats:
        sums = Tally()
        for tally in (self.sums, self.tally):
            sums.absorb(tally)
        return self.summarize(sums, self.usage, self.spent)


def watch() -> None:
    """From now on, the loaders of this program are noted."""
    global _loaders
    _loaders = {}


def is_watched() -> bool:
    """Whether `watch` was called."""
    return _loaders is not None


def note(
    number: int,
    name: str,
    summarize: Callable[[Tally, Usage, WorkerStats], LoaderStats],
    tally: Tally,
    usage: Usage,
) -> None:
    """Notes that an epoch of a loader starts.

    Args:
        number: of the loader, from `numbers`.
        name: the name of its dataset.
        summarize: makes its statistics from its counts, and from the times of its workers now and before.
    """
    assert _loaders is not None
    known = _loaders.setdefault(number, _Watched(name, summarize, tally, usage))
    known.renew(tally, usage)


def watched() -> list[tuple[str, LoaderStats]]:
    """The names of the datasets and the statistics of all loaders that were noted."""
    return [(loader.name, loader.stats()) for loader in (_loaders or {}).values()]
