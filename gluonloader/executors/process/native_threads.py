"""Warns if workers are forked while a library has native threads that it would wait for, without end, in a worker.

A fork copies only the thread that forks. Most libraries are prepared for this: they end their threads before the fork
(OpenBLAS, which NumPy uses), start new threads in the worker (pyarrow, MXNet), or compute without threads there (torch,
because a worker limits it to one thread). OpenCV and Polars are not prepared. docs/workers.md says what each of them
allows in a forked worker.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, Final

from ...errors import logger
from ...messages import message

_TASKS: Final = Path("/proc/self/task")


@message(frozen=True, slots=True)
class Danger:
    """What goes wrong in a forked worker if a library has threads in the main program, and what to do."""

    effect: str
    cure: str


DANGERS: Final = {
    "OpenCV": Danger(
        "cv2.setNumThreads(n) with n > 0 can hang or crash",
        "call cv2.setNumThreads(1) in the main program before you create the DataLoader",
    ),
    "Polars": Danger("Polars hangs as soon as it computes", "use Polars only in the main program"),
}
# These libraries start threads whose names do not differ from those of OpenCV's threads.
_ALIKE: Final = ("jax", "mxnet", "pyarrow", "sklearn", "torch")

_warned = False


def warn_of_native_threads() -> None:
    """Logs one warning per program if OpenCV or Polars has threads. Called right after a fork, in the parent."""
    global _warned
    try:
        library = None if _warned else library_with_threads()
    except OSError:
        return  # there is no free descriptor, or no /proc
    if library is not None:
        _warned = True
        logger().warning(
            "%s has threads in the main program, but a forked worker does not have these threads: in a worker, %s; %s, "
            "or pass start_method='forkserver'",
            library,
            DANGERS[library].effect,
            DANGERS[library].cure,
        )


def library_with_threads() -> str | None:
    """Returns the library of `DANGERS` that has threads now, if it is known; call it right after a fork.

    Raises:
        OSError: there is no free descriptor, or no /proc.
    """
    cv2: Any = sys.modules.get("cv2")
    if not ("polars" in sys.modules or hasattr(cv2, "getNumThreads")):
        return None
    names = native_threads()
    if any(name.startswith("polars-0") for name in names):
        return "Polars"
    # OpenCV does not name its threads, so they inherit the name of the program. After cv2.setNumThreads(0) or (1),
    # getNumThreads() is 1.
    if (_TASKS.parent / "comm").read_text() not in names or any(name in sys.modules for name in _ALIKE):
        return None
    return "OpenCV" if hasattr(cv2, "getNumThreads") and cv2.getNumThreads() > 1 else None


def native_threads() -> list[str]:
    """Returns the names of this process's threads that Python did not start; raises OSError if there is no /proc."""
    tasks = list(_TASKS.iterdir())
    started_by_python = {str(thread.native_id) for thread in threading.enumerate()}
    names = []
    for task in tasks:
        if task.name not in started_by_python:
            try:
                names.append((task / "comm").read_text())
            except OSError:
                pass  # the thread has ended meanwhile
    return names
