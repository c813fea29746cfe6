"""Formats the results: a table for each case, a table for executor="auto", and the description of the machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gluonloader.limits import available_cores

from .cases import Case
from .loaders import Loader
from .measure import UNMEASURED, Result
from .usage import Usage

__all__ = [
    "LIMITS",
    "UNITS",
    "auto_rows",
    "base_of",
    "case_table",
    "limit_of",
    "machine",
    "peer_of",
    "share_of_limit",
    "time_cells",
    "time_of",
    "used_cells",
]

UNITS = {"epoch": "batch", "first-batch": "start", "restart": "restart"}
LIMITS = ("bare loop", "plain copy")  # the bare loop uses one core, the plain copy uses a core for each worker
_HEADING = ["", "median", "minimum", "ratio", "of limit", "CPU", "with workers", "faults", "in workers", "peak MB"]
_WIDTHS = (10, 10, 8, 10, 10, 14, 9, 12, 9)


def case_table(case: Case, results: Sequence[Result], usage: Mapping[str, Usage]) -> str:
    """Returns the table of a case; the ratios are relative to the base of the case."""
    base, limit = base_of(case, results), limit_of(results)
    lines = [f"{case.name}: {case.what}", f"{_line(_HEADING if usage else _HEADING[:5])}  per {UNITS[case.measure]}"]
    for result in results:
        if result.missing is None:
            used = used_cells(usage.get(result.loader)) if usage else []
            lines.append(f"{_line([*time_cells(result, base, limit), *used])}{_against(result, results)}".rstrip())
        elif result.missing != UNMEASURED:
            lines.append(f"  {result.loader:16}{result.missing}")
    return "\n".join(lines)


def time_cells(result: Result, base: Result | None, limit: Result | None) -> list[str]:
    """Returns name, median, minimum, ratio to the base, and share of the limit; a text is empty if it is not known."""
    ratio = f"{result.ratio_to(base):.2f}" if base else ""
    share = f"{100 * share_of_limit(result, base, limit):.0f} %" if base and limit else ""
    return [result.loader, time_of(result.median), time_of(min(result.times)), ratio, share]


def used_cells(usage: Usage | None) -> list[str]:
    """Returns processor time without and with workers, page faults without and of workers, and peak memory in MB."""
    if usage is None:
        return ["-"] * 5
    faults = (f"{usage.parent_faults:.1f}", f"{usage.worker_faults:.1f}")
    return [time_of(usage.parent_s), time_of(usage.tree_s), *faults, f"{usage.peak / 1e6:.0f}"]


def auto_rows(findings: Mapping[str, Sequence[Result]]) -> list[list[str]]:
    """Returns a row for each case.

    A row has the name of the case, the time of each fixed executor, the time of "auto", the name of the fastest fixed
    executor, and the time of "auto" as a multiple of the time of that executor.
    """
    rows = []
    for name, results in findings.items():
        if all(result.times for result in results):
            *fixed, auto = results
            best = min(fixed, key=lambda result: result.median)
            times = [time_of(result.median) for result in results]
            rows.append([name, *times, best.loader, f"{auto.ratio_to(best):.2f}"])
    return rows


def base_of(case: Case, results: Sequence[Result]) -> Result | None:
    """Returns the result of the loader with which the others are compared; None if it was not measured."""
    return next((result for result in results if result.loader == case.base and result.times), None)


def limit_of(results: Sequence[Result]) -> Result | None:
    """Returns the result of the limit, the minimum work of a loader; None if it was not measured."""
    return next((result for result in results if result.loader in LIMITS and result.times), None)


def share_of_limit(result: Result, base: Result, limit: Result) -> float:
    """Returns the speed as a share of the limit, which is scaled to as many cores as the base has workers."""
    return limit.ratio_to(result) * max(1, limit.workers) / max(1, base.workers)


def peer_of(result: Result, results: Sequence[Result]) -> Result | None:
    """Returns the result of the peer of a loader (see `Loader.peer`); None if the peer was not measured."""
    return next((other for other in results if other.loader == result.peer and other.times), None)


def time_of(seconds: float) -> str:
    """Returns a time as text, in us or ms."""
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.{2 if seconds < 0.1 else 0}f} ms"


def machine(loaders: Iterable[Loader]) -> str:
    """Describes the machine: cores, processor, kernel, load average, and the versions of all libraries."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    libraries = {"NumPy": np.__version__}
    for loader in loaders:
        if loader.peer is None and loader.distribution != "numpy":
            libraries.setdefault(loader.distribution, loader.version)
    return (
        f"{available_cores()} cores, {found[1] if found else platform.processor() or platform.machine()}, "
        f"{platform.system()} {platform.release()}, "
        f"load average {os.getloadavg()[0]:.1f} before the run\n"
        f"Python {platform.python_version()}, {', '.join(f'{name} {version}' for name, version in libraries.items())}"
    )


def _line(cells: Sequence[str]) -> str:
    name, *others = cells
    return f"  {name:16}" + "".join(f"{cell:>{width}}" for cell, width in zip(others, _WIDTHS, strict=False))


def _against(result: Result, results: Sequence[Result]) -> str:
    peer = peer_of(result, results)
    return f"  {peer.loader} takes {peer.ratio_to(result):.1f} times as long" if peer else ""
