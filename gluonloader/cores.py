"""How many cores this process may use: by its affinity, and by the quota of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

__all__ = ["available_cores"]

_GROUPS: Final = Path("/sys/fs/cgroup")


def available_cores(own: Path = Path("/proc/self/cgroup"), groups: Path = _GROUPS) -> int:
    """At least 1.

    Args:
        own: the file that names this process's control group.
        groups: where control groups are mounted.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(min(_quotas(own, groups), default=cores))))


def _quotas(own: Path, groups: Path) -> list[float]:
    """Cores that each group above this process allows: version 2 of control groups, then version 1."""
    files = [groups / "cpu.max"]
    for line in _text(own).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or "cpu" in controllers.split(","):
            root = groups if number == "0" else groups / "cpu"
            places = [root / path.strip("/"), *(root / path.strip("/")).parents]
            files += [place / name for place in places for name in ("cpu.max", "cpu.cfs_quota_us")]
    quotas = []
    for file in files:
        words = _text(file).split()
        if file.name == "cpu.cfs_quota_us":
            words += _text(file.with_name("cpu.cfs_period_us")).split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return quotas


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
