"""The cores and the memory that this process may use, by the limits of the kernel and its cgroups; and the GIL.

A cgroup (control group) is a folder with the limits and the use of cores and memory of a group of processes.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

OWN: Final = Path("/proc/self/cgroup")
GROUPS: Final = Path("/sys/fs/cgroup")


def has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def group_folders(controller: str, own: Path, groups: Path) -> Iterator[Path]:
    """Yields the folders of this process's cgroups (version 1 and 2), innermost first; each of them may have a limit.

    Version 1 has one tree of folders for each `controller`, e.g. "memory". The file `own` names the process's cgroups,
    which are mounted at `groups`. In a container, its own cgroup is the root, and outer cgroups are not visible.
    """
    for line in _text_of(own).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or controller in controllers.split(","):
            root, parts = groups if number == "0" else groups / controller, Path(path).parts[1:]
            for depth in range(len(parts), -1, -1):
                yield root.joinpath(*parts[:depth])


def _text_of(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def allowed_cores() -> int:
    """Returns the number of cores on which this process may run, by its affinity; libraries start as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(own: Path = OWN, groups: Path = GROUPS) -> float | None:
    """Returns how many cores the cgroups of this process may use at a time, such as 1.5; None if there is no quota."""
    quotas = []
    for folder in group_folders("cpu", own, groups):
        # Version 2 has one file with both numbers, version 1 has two files.
        names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = "".join(_text_of(folder / name) for name in names).split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def available_cores(own: Path = OWN, groups: Path = GROUPS) -> int:
    """Returns the number of cores that this process may use, at least 1."""
    cores, quota = allowed_cores(), cpu_quota(own, groups)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def available_memory(own: Path = OWN, groups: Path = GROUPS) -> int:
    """Returns the bytes that this process can still allocate without swapping; huge if that is unknown."""
    kilobytes = re.findall(r"^MemAvailable: +(\d+) kB$", _text_of(Path("/proc/meminfo")), re.MULTILINE)
    left = [1 << 62, *(int(number) * 1024 for number in kilobytes)]
    for limit, used in _limits(own, groups):
        try:
            left.append(int(_text_of(limit)) - int(_text_of(used)) + _cached_files(used.parent))
        except ValueError:
            pass  # the limit was removed
    return min(left)


def memory_limit(own: Path = OWN, groups: Path = GROUPS) -> int | None:
    """Returns the bytes of memory that the cgroups of this process may use; None if there is no limit."""
    limits = [_text_of(limit).strip() for limit, _ in _limits(own, groups)]
    return min((int(limit) for limit in limits if limit.isdecimal()), default=None)


@cache
def _limits(own: Path, groups: Path) -> list[tuple[Path, Path]]:
    """Returns the files with limit and use of each cgroup that had a memory limit at the first call."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    files = [(group / limit, group / used) for group in group_folders("memory", own, groups) for limit, used in names]
    return [pair for pair in files if (text := _text_of(pair[0]).strip()).isdecimal() and int(text) < 1 << 62]


def _cached_files(group: Path) -> int:
    """Returns the bytes of the page cache, which count as used but are freed when memory runs short."""
    sizes = dict(re.findall(r"^((?:total_)?(?:in)?active_file) (\d+)$", _text_of(group / "memory.stat"), re.MULTILINE))
    prefix = "total_" if "total_active_file" in sizes else ""  # version 1 counts the groups inside it separately
    return sum(int(sizes.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))


def oom_kills(own: Path = OWN, groups: Path = GROUPS) -> int:
    """Returns how many processes of this cgroup the kernel's out-of-memory killer has killed; 0 if that is unknown."""
    for folder in group_folders("memory", own, groups):
        for name in ("memory.events", "memory.oom_control"):
            if found := re.search(r"^oom_kill (\d+)$", _text_of(folder / name), re.MULTILINE):
                return int(found[1])
    return 0
