"""What this process may use: cores and memory, as the kernel and the control groups of its container limit them.

Control groups are folders in which the kernel says what it allows the processes of a group, and what they use.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["GROUPS", "OWN", "available_cores", "available_memory", "group_folders", "oom_kills"]

OWN: Final = Path("/proc/self/cgroup")
GROUPS: Final = Path("/sys/fs/cgroup")


def group_folders(controller: str, own: Path, groups: Path) -> Iterator[Path]:
    """The folders of this process's groups, the innermost first, in version 1 and 2 of control groups.

    Each of them may bound it. In a container those on the outside are not there, and the container's own is the root.

    Args:
        controller: what version 1 has a tree of its own for, e.g. "memory".
        own: the file that names this process's groups.
        groups: where control groups are mounted.
    """
    for line in _text_of(own).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or controller in controllers.split(","):
            root, parts = groups if number == "0" else groups / controller, Path(path).parts[1:]
            for depth in range(len(parts), -1, -1):
                yield root.joinpath(*parts[:depth])


def _text_of(file: Path) -> str:
    """What the file holds; nothing if it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def available_cores(own: Path = OWN, groups: Path = GROUPS) -> int:
    """At least 1; for the arguments see `group_folders`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(min(_quotas(own, groups), default=cores))))


def _quotas(own: Path, groups: Path) -> list[float]:
    """Cores that each group above this process allows: version 2 of control groups, then version 1."""
    quotas = []
    for folder in group_folders("cpu", own, groups):
        words = "".join(
            _text_of(folder / name) for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        ).split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return quotas


def available_memory(own: Path = OWN, groups: Path = GROUPS) -> int:
    """Bytes that can be had without swapping, as the kernel and this process's cgroups see it; huge if unknown.

    For the arguments see `group_folders`.
    """
    kilobytes = re.findall(r"^MemAvailable: +(\d+) kB$", _text_of(Path("/proc/meminfo")), re.MULTILINE)
    left = [1 << 62, *(int(number) * 1024 for number in kilobytes)]
    for most, now in _limits(own, groups):
        try:
            left.append(int(_text_of(most)) - int(_text_of(now)) + _cached_files(now.parent))
        except ValueError:
            pass  # no such file, or no limit, any more
    return min(left)


@cache
def _limits(own: Path, groups: Path) -> list[tuple[Path, Path]]:
    """The files with limit and use of each group that has a limit; one that gets its first limit later is left out."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    files = [(folder / most, folder / now) for folder in group_folders("memory", own, groups) for most, now in names]
    return [(most, now) for most, now in files if (text := _text_of(most).strip()).isdecimal() and int(text) < 1 << 62]


def _cached_files(group: Path) -> int:
    """Bytes of files that were read and stay in memory until it is needed; they count as used."""
    sizes = dict(re.findall(r"^((?:total_)?(?:in)?active_file) (\d+)$", _text_of(group / "memory.stat"), re.MULTILINE))
    prefix = "total_" if "total_active_file" in sizes else ""  # version 1 tells apart what lies in groups within
    return sum(int(sizes.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))


def oom_kills(own: Path = OWN, groups: Path = GROUPS) -> int:
    """How many processes of this cgroup the kernel has killed for want of memory; 0 where that cannot be read.

    For the arguments see `group_folders`.
    """
    for folder in group_folders("memory", own, groups):
        for name in ("memory.events", "memory.oom_control"):
            if found := re.search(r"^oom_kill (\d+)$", _text_of(folder / name), re.MULTILINE):
                return int(found[1])
    return 0
