"""What a script that was run with gluonloader's classes has gained: a line on standard error when it ends."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Final

from ..describe import counted
from ..messages import message
from ..statistics import program
from ..statistics.stats import ENOUGH, LoaderStats
from ..units import duration, percent

_WAITS: Final = 0.1  # a loader is worth a change if its program waits for it in more of its time
_LONG_S: Final = 1e-3  # a worker pays off for batches that take longer to make
_MOST_ADVISED: Final = 8  # workers


@message(frozen=True, slots=True)
class Report:
    """What is printed at the end of a script.

    Attributes:
        library: what the script uses, e.g. "torch.utils.data".
        whole: whether the statistics of each loader are printed, too.
    """

    library: str
    whole: bool

    def begin(self) -> None:
        """Watches the loaders of this program from now on, and prints the report when it ends."""
        program.watch()
        atexit.register(self._print, os.getpid())

    def _print(self, pid: int) -> None:
        if os.getpid() == pid and os.environ.get("RANK", "0") == "0":  # not in a forked child, and for one rank
            print(*self.lines(program.watched()), sep="\n", file=sys.stderr, flush=True)

    def lines(self, loaders: list[tuple[str, LoaderStats]]) -> list[str]:
        """The report on loaders, each with the name of its dataset."""
        if not loaders:
            return [f"gluonloader: the script has read no batch of a DataLoader of {self.library}, so nothing changed"]
        whole = [f"\n{name}: {stats}" for name, stats in loaders if self.whole]
        return [_summary([stats for _, stats in loaders]), *whole]


def _summary(loaders: list[LoaderStats]) -> str:
    """One line for all loaders.

    >>> _summary([])
    'gluonloader: 0 loaders, 0 batches; the script waited for them 0 us, 0 % of the time of its loops'
    """
    waited, used = (sum(getattr(stats, name) for stats in loaders) for name in ("waited_s", "program_s"))
    count, batches = counted(len(loaders), "loader", "loaders"), sum(stats.batches for stats in loaders)
    share = percent(waited / (waited + used) if waited else 0.0)
    text = f"gluonloader: {count}, {counted(batches, 'batch', 'batches')}; "
    text += f"the script waited for them {duration(waited)}, {share} of the time of its loops"
    deaths, again = (sum(getattr(stats, name) for stats in loaders) for name in ("deaths", "retries"))
    if deaths:
        text += f"; {counted(deaths, 'worker', 'workers')} died"
        text += f", and {counted(again, 'batch was', 'batches were')} made again" if again else ""
    return text + _cure(loaders)


def _cure(loaders: list[LoaderStats]) -> str:
    """What would help, as the end of the line."""
    slow = [stats for stats in loaders if stats.waited >= _WAITS and stats.batches >= ENOUGH]
    if not slow:
        return ""
    alone = [stats for stats in slow if not stats.num_workers and stats.made_s > _LONG_S * stats.batches]
    if alone:
        count = counted(len(alone), "loader", "loaders")
        return f"; {count} without workers: pass num_workers={min(alone[0].cores, _MOST_ADVISED)}"
    _, _, cure = max(slow, key=lambda stats: stats.waited_s).advice.partition(". ")  # the first sentence says the share
    return f". {cure}" if cure else ""
