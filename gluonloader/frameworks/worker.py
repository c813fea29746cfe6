"""Worker processes. One starts no threads of a framework, since a forked process can hang in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# A worker that did not inherit this process's memory calls these functions before it unpickles its job.
preparations: list[Callable[[], object]] = []

_in_worker = False


def enter_worker() -> None:
    """Marks this process as a worker and limits torch to one thread.

    A forked process has lost the threads of torch's OpenMP pool, and would wait for them forever.
    """
    global _in_worker
    _in_worker = True
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def in_worker() -> bool:
    """Whether this process is a worker."""
    return _in_worker
