"""What is printed: a table for each case, one for executor="auto", and the machine it ran on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

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
    "cores_for",
    "limit_of",
    "machine",
    "peer_of",
    "share_of_limit",
    "time_of",
]

UNITS = {"epoch": "batch", "first-batch": "start", "restart": "restart"}
LIMITS = ("bare loop", "plain copy")  # one core, and one for each worker


def case_table(case: Case, results: Sequence[Result], usage: Mapping[str, Usage]) -> str:
    """The lines of one case; ratios are to its base."""
    base, limit = base_of(case, results), limit_of(results)
    heading = f"  {'':16}{'median':>10}{'minimum':>10}{'ratio':>8}{'of limit':>10}{'CPU':>10}{'workers too':>13}"
    lines = [
        f"{case.name}: {case.what}",
        f"{heading}{'faults':>9}{'theirs':>9}{'peak MB':>9}  per {UNITS[case.measure]}",
    ]
    for result in results:
        if result.missing == UNMEASURED:
            continue
        if result.missing is not None:
            lines.append(f"  {result.loader:16}{result.missing}")
            continue
        ratio = f"{result.ratio_to(base):.2f}" if base else ""
        share = f"{share_of_limit(result, base, limit):.0%}" if base and limit else ""
        times = f"{time_of(result.median):>10}{time_of(min(result.times)):>10}{ratio:>8}{share:>10}"
        used = _used(usage.get(result.loader))
        lines.append(f"  {result.loader:16}{times}{used}{_against(result, results)}".rstrip())
    return "\n".join(lines)


def auto_rows(findings: Mapping[str, Sequence[Result]]) -> list[list[str]]:
    """For each case: its name, time of "auto", that of each fixed choice, the best of these and the ratio to it."""
    rows = []
    for name, results in findings.items():
        if all(result.times for result in results):
            *fixed, auto = results
            best = min(fixed, key=lambda result: result.median)
            times = [time_of(result.median) for result in results]
            rows.append([name, *times, best.loader, f"{auto.ratio_to(best):.2f}"])
    return rows


def base_of(case: Case, results: Sequence[Result]) -> Result | None:
    """The loader that the others are compared with, if it was measured."""
    return next((result for result in results if result.loader == case.base and result.times), None)


def limit_of(results: Sequence[Result]) -> Result | None:
    """What does the least that a loader has to do, if it was measured."""
    return next((result for result in results if result.loader in LIMITS and result.times), None)


def share_of_limit(result: Result, base: Result, limit: Result) -> float:
    """1 is as fast as the limit would be with as many cores as the base has workers."""
    return limit.ratio_to(result) / cores_for(limit, base)


def cores_for(limit: Result, base: Result) -> float:
    """With how many cores, for each that it has, the limit has as many as the base has workers."""
    return max(1, base.workers) / max(1, limit.workers)


def peer_of(result: Result, results: Sequence[Result]) -> Result | None:
    """Who gives the same kind of arrays as this result of gluonloader, and was measured."""
    return next((other for other in results if other.loader == result.peer and other.times), None)


def time_of(seconds: float) -> str:
    """As text, with the unit that fits."""
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.{2 if seconds < 0.1 else 0}f} ms"


def machine(loaders: Iterable[Loader]) -> str:
    """Cores, processor, kernel, how busy it is, and the version of everything that takes part."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = {"NumPy": np.__version__}
    for loader in loaders:
        if loader.peer is None and loader.distribution != "numpy":
            libraries.setdefault(loader.distribution, loader.absence() or loader.version)
    return (
        f"{cores} cores, {found[1] if found else platform.processor() or platform.machine()}, "
        f"{platform.system()} {platform.release()}, "
        f"load average {os.getloadavg()[0]:.1f} before the run\n"
        f"Python {platform.python_version()}, {', '.join(f'{name} {version}' for name, version in libraries.items())}"
    )


def _used(usage: Usage | None) -> str:
    if usage is None:
        return ""
    cpu = f"{time_of(usage.parent_s):>10}{time_of(usage.tree_s):>13}"
    return f"{cpu}{usage.parent_faults:>9.1f}{usage.worker_faults:>9.1f}{usage.peak / 1e6:>9.0f}"


def _against(result: Result, results: Sequence[Result]) -> str:
    peer = peer_of(result, results)
    return f"  {peer.loader} takes {peer.ratio_to(result):.1f} times as long" if peer else ""
