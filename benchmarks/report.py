"""What is printed: times and sizes as text, tables in Markdown, and the description of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import gluonloader


def time_of(seconds: float) -> str:
    """Returns a time as text, in ns, us or ms."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"
    return f"{seconds * 1e3:.{2 if seconds < 0.1 else 0}f} ms"


def size_of(count: float) -> str:
    """Returns a number of bytes as text, from bytes to TB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown; the numbers in all columns but the first are aligned to the right."""
    ruler = ["---", *["---:"] * (len(heading) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ruler, *rows))


def machine(packages: Iterable[str] = ()) -> str:
    """Describes the machine: cores, processor, kernel, load average, and the versions of Python and these packages."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    libraries = {"Python": platform.python_version(), "NumPy": np.__version__, "gluonloader": gluonloader.__version__}
    libraries |= {package: _version(package) for package in packages}
    return (
        f"{len(os.sched_getaffinity(0))} cores, {found[1] if found else platform.processor() or platform.machine()}, "
        f"{platform.system()} {platform.release()}, load average {os.getloadavg()[0]:.1f} before the run\n"
        f"{', '.join(f'{name} {version}' for name, version in libraries.items())}"
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
