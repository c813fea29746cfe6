"""Why a worker is gone: exit code or signal, whether the system ran out of memory, and where a stuck one stands."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Final

from ...errors import WorkerDied
from ...limits import oom_kills
from ...work.task import Samples, Task
from .lane import Lane
from .supervisor import LaneProcess
from .worker import DUMP_SIGNAL

__all__ = ["bury", "describe_exit", "kill_stuck", "start_hint", "worker_died"]

_REAPING_S: Final = 1.0
_STACK_S: Final = 1.0
_SHOWN_INDICES: Final = 16


def bury(process: LaneProcess) -> int | None:
    """Makes sure that a process whose lane has closed is dead, so that it writes no more; returns its exit code."""
    process.join(_REAPING_S)
    if process.is_alive():
        process.kill()
        process.join(_REAPING_S)
    deadline = time.monotonic() + _REAPING_S
    while process.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.001)  # the Pool's thread has reaped it and is about to note the code
    return process.exitcode


def describe_exit(code: int | None, oom_before: int) -> str:
    """An exit code in words.

    >>> describe_exit(3, 0), describe_exit(-11, 0)
    ('with exit code 3', 'by SIGSEGV')
    """
    if code is None:
        return "without an exit code"
    if code >= 0:
        return f"with exit code {code}"
    text = f"by {signal.Signals(-code).name}"
    if -code == signal.SIGKILL:
        killed = oom_kills() > oom_before
        text += (
            " (the system ran out of memory: use fewer workers, a smaller batch_size or prefetch)"
            if killed
            else " (not for want of memory, as far as this cgroup's counter tells)"
        )
    return text


def worker_died(pid: int | None, how: str, task: Task, deaths: int, position: int | None) -> WorkerDied:
    """The error for a batch that took its workers with it.

    Args:
        pid, how: the last worker, and how it ended.
        task, deaths: the batch, and how many workers died on it.
        position: position of the sample that was being read, where that is known.
    """
    indices = task.indices
    if indices is None:
        what = "batchify_fn" if isinstance(task.work, Samples) else f"{task.sample(position or 0)}, or batchify_fn"
    elif position is None:
        shown = ", ".join(map(repr, indices[:_SHOWN_INDICES]))
        more = len(indices) - _SHOWN_INDICES
        what = f"one of its samples [{shown}{f', ... {more} more' if more > 0 else ''}] (or batchify_fn)"
    elif position == len(indices) - 1:
        what = f"its last sample, {task.sample(position)}, or batchify_fn"
    else:
        what = f"sample {task.sample(position)} (position {position})"
    return WorkerDied(
        f"worker (pid {pid}) ended {how} while it made {task}, at {what}; "
        f"{deaths} worker{'s' if deaths > 1 else ''} died on this batch. Iteration goes on with the next batch; "
        "max_retries says how often a batch is tried again"
    )


def start_hint(forked: bool) -> str:
    """What to look at where workers end while they start."""
    if forked:
        return "worker_init_fn ends them: try num_workers=0"
    guard = "a script that makes a loader needs `if __name__ == '__main__':` around that, else"
    return f"{guard} unpickling the dataset or worker_init_fn ends them: try num_workers=0"


def kill_stuck(lane: Lane, forked: bool) -> str:
    """Kills a worker that does not answer, and says where it stood; `forked`: its start method is fork."""
    process = lane.process
    stack = _stack_of(process, lane.notes)
    process.kill()
    if lane.ready:
        # JAX's own frames are not always on the stack.
        jax = forked and "jax" in sys.modules
        hint = "\nJAX hangs in a forked process: if it is that, use start_method='forkserver'" if jax else ""
        return f"its worker (pid {process.pid}) is replaced; it stood at\n{stack}{hint}"
    return (
        f"its worker (pid {process.pid}) has not even started, perhaps for a lock that was held at the fork "
        f"(try start_method='forkserver'); it is replaced, and stood at\n{stack}"
    )


def _stack_of(process: LaneProcess, notes: int) -> str:
    """The Python stack of a worker that does not answer, written by faulthandler inside it."""
    before = os.fstat(notes).st_size
    try:
        os.kill(process.pid or 0, DUMP_SIGNAL)
    except (ProcessLookupError, TypeError):
        return "  (the worker is gone)\n"
    deadline = time.monotonic() + _STACK_S
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.01)
        now = os.fstat(notes).st_size
        if now == size > before:
            break
        size = now
    text = os.pread(notes, size - before, before).decode(errors="replace")
    text = text.partition(" in serve_lane\n")[0].rpartition("\n")[0] + "\n" if " in serve_lane\n" in text else text
    return text or "  (the worker does not react to signals)\n"
