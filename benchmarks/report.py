"""What is printed: a table for each case, the same as markdown, and the machine it ran on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .cases import Case
from .loaders import Loader
from .measure import Result

__all__ = ["case_table", "machine", "markdown"]

_UNITS = {"epoch": "batch", "first-batch": "start", "restart": "restart"}


def case_table(case: Case, results: Sequence[Result]) -> str:
    """The lines of one case; ratios are to the first result, gluonloader with NumPy arrays out."""
    base = results[0]
    heading = f"  {'':14}{'median':>10}{'minimum':>10}{'ratio':>8}  per {_UNITS[case.measure]}"
    lines = [f"{case.name}: {case.what}", heading]
    for result in results:
        if result.missing is not None:
            lines.append(f"  {result.loader:14}{result.missing}")
            continue
        ratio = f"{result.ratio_to(base):.2f}"
        times = f"{_time(result.median):>10}{_time(min(result.times)):>10}{ratio:>8}"
        peer = _peer(result, results)
        against = f"  {peer.loader} takes {peer.ratio_to(result):.1f} times as long" if peer else ""
        lines.append(f"  {result.loader:14}{times}{against}")
    return "\n".join([*lines, *_copy_limit(case, results)])


def markdown(results: Mapping[str, Sequence[Result]], cases: Iterable[Case], about: str) -> str:
    """One table over all cases: median, and how many times gluonloader's; what is missing is named below it."""
    names = list(dict.fromkeys(result.loader for case in results.values() for result in case))
    rows = [["case", "per", *names], ["---", "---", *["---:"] * len(names)]]
    notes: dict[str, list[str]] = {}
    for case in cases:
        by_name = {result.loader: result for result in results[case.name]}
        cells = [_cell(by_name.get(name), results[case.name]) for name in names]
        rows.append([f"`{case.name}`", _UNITS[case.measure], *cells])
        for result in results[case.name]:
            if result.missing is not None:
                notes.setdefault(f"{result.loader}: {result.missing}", []).append(f"`{case.name}`")
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    what = "\n".join(f"- `{case.name}`: {case.what}" for case in cases)
    limits = [f"- {line.strip()}" for case in cases for line in _copy_limit(case, results[case.name])]
    missing = [f"- {reason} ({', '.join(where)})" for reason, where in notes.items()]
    parts = (
        table,
        "Median / minimum of the rounds. In brackets: how many times as long as gluonloader's, or, for its tensors and "
        "NDArrays, how many times as long the loader named there takes (median of the rounds' ratios).",
        what,
        "\n".join([*limits, *missing]),
        about,
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def machine(loaders: Iterable[Loader]) -> str:
    """Cores, processor, kernel, how busy it is, and the version of everything that takes part."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = [f"NumPy {np.__version__}"]
    for loader in loaders:
        if loader.peer is None:
            absence = loader.absence()
            libraries.append(f"{loader.name} {loader.version if absence is None else absence}")
    return (
        f"{cores} cores, {found[1] if found else platform.processor() or platform.machine()}, "
        f"{platform.system()} {platform.release()}, "
        f"load average {os.getloadavg()[0]:.1f} before the run\n"
        f"Python {platform.python_version()}, {', '.join(libraries)}"
    )


def _cell(result: Result | None, results: Sequence[Result]) -> str:
    if result is None or result.missing is not None:
        return "-"
    times = f"{_time(result.median)} / {_time(min(result.times))}"
    peer = _peer(result, results)
    if peer is not None:
        return f"{times} ({peer.loader} {peer.ratio_to(result):.1f})"
    own = result is results[0] or result.peer is not None
    return times if own else f"{times} ({result.ratio_to(results[0]):.1f})"


def _peer(result: Result, results: Sequence[Result]) -> Result | None:
    """Who gives the same kind of arrays as this result of gluonloader, and was measured."""
    return next((other for other in results if other.loader == result.peer and other.times), None)


def _copy_limit(case: Case, results: Sequence[Result]) -> list[str]:
    copy = next((result for result in results if result.loader == "plain copy" and result.times), None)
    if copy is None:
        return []
    nbytes = sum(sample.nbytes for sample in case.samples()[: case.batch_size])
    loader = results[0]
    return [
        f"  plain copy {nbytes / copy.median / 1e9:.1f} GB/s, {loader.loader} {nbytes / loader.median / 1e9:.1f} GB/s: "
        f"{copy.ratio_to(loader):.0%} of it"
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.{2 if seconds < 0.1 else 0}f} ms"
