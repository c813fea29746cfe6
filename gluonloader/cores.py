"""How many cores this process may use: by its affinity, and by the quota of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

from .cgroups import GROUPS, OWN, group_folders, text_of

__all__ = ["available_cores"]


def available_cores(own: Path = OWN, groups: Path = GROUPS) -> int:
    """At least 1; for the arguments see `group_folders`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(min(_quotas(own, groups), default=cores))))


def _quotas(own: Path, groups: Path) -> list[float]:
    """Cores that each group above this process allows: version 2 of control groups, then version 1."""
    quotas = []
    for folder in group_folders("cpu", own, groups):
        words = "".join(text_of(folder / name) for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")).split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return quotas
