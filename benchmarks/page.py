"""The results as a page of markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .cases import CASES, Case
from .measure import UNMEASURED, Result
from .report import UNITS, auto_rows, base_of, limit_of, peer_of, time_cells, used_cells
from .usage import Usage

__all__ = ["page"]

Times = Mapping[str, Sequence[Result]]

_ORIGIN = "`python -m benchmarks --markdown` writes this page; do not edit it."
_TIMES = """Each round times one epoch of every loader in turn; the tables give the median and the minimum of the
rounds. Each loader runs in a separate program, and the other programs are stopped meanwhile. *Ratio* is the time as
a multiple of that of the loader with 1.00 (median of the rounds' ratios). *Of the limit* is the share of the speed
that the hardware allows: 100 % is the case's bare loop on as many cores as gluonloader has workers, or its plain
copy. Without workers, the processor time of gluonloader is that of making batches."""
_USAGE = """Processor time and page faults are per batch, after two epochs of warm-up. *CPU* and *faults* are those
of the main program with all its threads; *with workers'* and *workers'* include or count those of the workers.
*Peak MB* is the highest sum of the private memory of all processes and of all shared memory, less what there was
before the loader was opened. These figures come from another run in a separate program for each loader."""


def page(times: Times, usage: Mapping[str, Mapping[str, Usage]], auto: Times, about: str, picture: str) -> str:
    """All that was measured; parts that were not are left out.

    Args:
        times: results by case.
        usage: by case and loader.
        auto: results of "auto" and of the fixed choices, by case.
        about: machine, versions and command.
        picture: the path of the plot, as seen from the page.
    """
    parts = [
        "# Results",
        "`python -m benchmarks --markdown` writes this page; do not edit it.",
        f"```text\n{about}\n```",
    ]
    if times:
        parts += [f"![Time per batch, relative to gluonloader]({picture})", _TIMES, *([_USAGE] if usage else [])]
        for name, results in times.items():
            parts += _section(CASES[name], results, usage.get(name, {}))
    if auto:
        choices = [result.loader for result in next(iter(auto.values()))]
        heading = ["case", *choices, "best fixed choice", "auto to it"]
        parts += ['## executor="auto" against fixed choices', _table(heading, auto_rows(auto))]
    return "\n\n".join(parts) + "\n"


def _section(case: Case, results: Sequence[Result], usage: Mapping[str, Usage]) -> list[str]:
    limit, base = limit_of(results), base_of(case, results)
    heading = ["", f"per {UNITS[case.measure]}", "minimum", "ratio"]
    heading += ["of the limit"] if limit else []
    heading += ["CPU", "with workers'", "faults", "workers'", "peak MB"] if usage else []
    rows, notes = [], []
    for result in results:
        if result.missing is None:
            timed = time_cells(result, base, limit)[: 5 if limit else 4]
            rows.append([*timed, *(used_cells(usage.get(result.loader)) if usage else [])])
            peer = peer_of(result, results)
            notes += (
                [f"{peer.loader} takes {peer.ratio_to(result):.1f} times as long as {result.loader}"] if peer else []
            )
        elif result.missing != UNMEASURED:
            notes.append(f"{result.loader}: {result.missing}")
    parts = [f"## {case.name}", case.what, _table(heading, rows) if rows else "", "\n".join(f"- {n}" for n in notes)]
    return [part for part in parts if part]


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    ruler = ["---", *["---:"] * (len(heading) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ruler, *rows))
