"""Writes the results as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .cases import CASES, Case
from .measure import UNMEASURED, Result
from .report import UNITS, auto_rows, base_of, limit_of, peer_of, time_cells, used_cells
from .usage import Usage

__all__ = ["page"]

Times = Mapping[str, Sequence[Result]]

_ORIGIN = "`python -m benchmarks --markdown` writes this page; do not edit it."
_PICTURE = """<picture>
<source media="(prefers-color-scheme: dark)" srcset="results-dark.svg">
<img src="results.svg" alt="Time per batch of each loader, relative to gluonloader">
</picture>"""
_TIMES = """A round times an epoch of each loader. The tables show the median and the minimum of the rounds. Each
loader runs in a separate program, and all other programs are stopped meanwhile. *Ratio* is the time of a loader as a
multiple of the time of the loader with ratio 1.00 (the median of the ratios of each round). *Of the limit* is the
speed as a share of the speed that the hardware allows: 100 % is the speed of the bare loop on as many cores as
gluonloader has workers, or of the plain copy. If gluonloader has no workers, its processor time contains the time to
make the batches."""
_USAGE = """Processor time and page faults are per batch, after two epochs of warm-up. *CPU* is the processor time of
the main program with all its threads, and *CPU with workers* also includes the workers. *Faults* are the page faults
of the main program, and *worker faults* are the page faults of the workers. *Peak MB* is the highest sum of the
private memory of all processes and of all shared memory, minus the memory that was in use before the loader was
opened. These figures were measured in another run, with a separate program for each loader."""


def page(times: Times, usage: Mapping[str, Mapping[str, Usage]], auto: Times, about: str) -> str:
    """Returns the page with all results. It has no sections for what was not measured.

    The page shows the pictures that `python -m benchmarks.plot` draws beside it.

    Args:
        times: results of each case.
        usage: usage of each loader in each case.
        auto: results of "auto" and of the fixed executors in each case.
        about: description of the machine, the versions and the command.
    """
    parts = ["# Results", _ORIGIN, f"```text\n{about}\n```"]
    if times:
        parts += [_PICTURE, _TIMES, *([_USAGE] if usage else [])]
        for name, results in times.items():
            parts += _section(CASES[name], results, usage.get(name, {}))
    if auto:
        choices = [result.loader for result in next(iter(auto.values()))]
        heading = ["case", *choices, "best fixed executor", "auto / best"]
        parts += ['## executor="auto" compared with fixed executors', _table(heading, auto_rows(auto))]
    return "\n\n".join(parts) + "\n"


def _section(case: Case, results: Sequence[Result], usage: Mapping[str, Usage]) -> list[str]:
    limit, base = limit_of(results), base_of(case, results)
    heading = ["", f"per {UNITS[case.measure]}", "minimum", "ratio"]
    heading += ["of the limit"] if limit else []
    heading += ["CPU", "CPU with workers", "faults", "worker faults", "peak MB"] if usage else []
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
