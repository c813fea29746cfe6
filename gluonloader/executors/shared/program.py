"""What tells the programs of a machine apart, so that only ranks of one program share workers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from ...ranks import launched_by

OWN_NAME: Final = "GLUONLOADER_PROGRAM"  # a user's own name for a program

# Options whose values may differ between the ranks of a program, such as --local_rank=3 or --gpu 3. Lightning passes
# options of Hydra to all ranks but the first one.
_OF_RANK: Final = re.compile(
    r"--?(?:[\w-]*rank|proc(?:ess)?[_-]id|task[_-](?:id|index)|gpu(?:[_-]id)?|device)|hydra\..*", re.IGNORECASE
)


def program(index: int, count: int) -> list[str]:
    """Identifies the program of this process, which is rank `index` of `count`; see `docs/processes.md`."""
    if OWN_NAME in os.environ:
        return [os.environ[OWN_NAME]]
    started = launched_by(index, count) or [f"child of {os.getppid()}, which has started at {_start_of(os.getppid())}"]
    script = os.path.realpath(sys.argv[0]) if sys.argv and os.path.exists(sys.argv[0]) else ""
    return [*started, script, *_same_arguments(sys.argv[1:])]


def _same_arguments(arguments: list[str]) -> list[str]:
    """The arguments without those that differ between the ranks."""
    same: list[str] = []
    is_value = False  # whether the next argument is that of an option that was left out
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if _OF_RANK.fullmatch(name):
            is_value = not equals
            continue
        if not is_value or argument.startswith("-"):
            same.append(argument)
        is_value = False
    return same


def _start_of(pid: int) -> str:
    """When a process has started, in ticks of the system since its start."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
