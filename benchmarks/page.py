"""The results of the comparison in Markdown: a section for each case, and the page with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .cases import CASES, Case
from .measure import LIMITS, UNMEASURED, Result
from .report import markdown, time_of
from .usage import Usage

Times = Mapping[str, Sequence[Result]]

_ORIGIN = "`python -m benchmarks --markdown` writes this page; do not edit it."
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

    Args:
        times: results of each case.
        usage: usage of each loader in each case.
        auto: results of "auto" and of the fixed executors in each case.
        about: description of the machine, the versions and the command.
    """
    parts = ["# Results", _ORIGIN, f"```text\n{about}\n```", _TIMES, *([_USAGE] if usage else [])]
    parts += [section(CASES[name], results, usage.get(name, {})) for name, results in times.items()]
    if auto:
        parts += ['## executor="auto" compared with fixed executors', auto_table(auto)]
    return "\n\n".join(parts) + "\n"


def section(case: Case, results: Sequence[Result], usage: Mapping[str, Usage]) -> str:
    """Returns the table of a case; the ratios are relative to the base of the case."""
    by_name = {result.loader: result for result in results if result.times}
    base = by_name.get(case.base)
    limit = next((by_name[name] for name in LIMITS if name in by_name), None)
    heading = ["", "per batch", "minimum", "ratio"] + (["of the limit"] if limit else [])
    heading += ["CPU", "CPU with workers", "faults", "worker faults", "peak MB"] if usage else []
    rows, notes = [], []
    for result in by_name.values():
        ratio = f"{result.ratio_to(base):.2f}" if base else ""
        row = [result.loader, time_of(result.median), time_of(min(result.times)), ratio]
        if limit:
            row.append(f"{100 * result.share_of(limit, base):.0f} %" if base else "")
        rows.append(row + (_used(usage.get(result.loader)) if usage else []))
        if peer := by_name.get(result.peer or ""):
            notes.append(f"- {peer.loader} takes {peer.ratio_to(result):.1f} times as long as {result.loader}")
    notes += [f"- {each.loader}: {each.missing}" for each in results if each.missing not in (None, UNMEASURED)]
    parts = [f"## {case.name}", case.what, markdown(heading, rows) if rows else "", "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def _used(usage: Usage | None) -> list[str]:
    """Returns processor time without and with workers, page faults without and of workers, and peak memory in MB."""
    if usage is None:
        return ["-"] * 5
    faults = (f"{usage.parent_faults:.1f}", f"{usage.worker_faults:.1f}")
    return [time_of(usage.parent_s), time_of(usage.tree_s), *faults, f"{usage.peak / 1e6:.0f}"]


def auto_table(auto: Times) -> str:
    """Returns a table with a row for each case: the fixed executors, "auto", and "auto" relative to the fastest."""
    heading = ["case", *(result.loader for result in next(iter(auto.values()))), "best fixed executor", "auto / best"]
    rows = []
    for name, results in auto.items():
        if all(result.times for result in results):
            *fixed, chosen = results
            best = min(fixed, key=lambda result: result.median)
            times = [time_of(result.median) for result in results]
            rows.append([name, *times, best.loader, f"{chosen.ratio_to(best):.2f}"])
    return markdown(heading, rows)
