"""Why a worker process died: its exit code or signal, or no memory; and where a worker process is stuck."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import Final, Protocol

from ...limits import oom_kills
from ...work.maker import BatchMaker
from .main_script import import_main
from .supervisor import UNKNOWN_EXIT, LaneProcess
from .worker import DUMP_SIGNAL

_REAPING_S: Final = 1.0  # how long a process whose lane has closed may take to end before it is killed
_STACK_S: Final = 1.0  # how long a stuck worker may take to write its stack


def reap(process: LaneProcess) -> int | None:
    """Makes sure that a process whose lane has closed is dead; returns its exit code, None if it is not known."""
    deadline = time.monotonic() + _REAPING_S
    while not process.ended:
        if time.monotonic() > deadline:
            process.kill()
            break
        time.sleep(0.001)
    process.join(_REAPING_S)  # the exit code may come later, from the fork server
    code = process.exitcode
    return None if code == UNKNOWN_EXIT else code


def describe_exit(code: int | None, oom_before: int) -> str:
    """An exit code in words; `oom_before` is what `oom_kills` returned earlier.

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
            " (the system ran out of memory: pass a smaller num_workers, batch_size or prefetch)"
            if killed
            else " (the kernel has counted no out-of-memory kill in this cgroup)"
        )
    return text


class Killable(Protocol):
    """A worker process, also of another program.

    Attributes:
        worker: the number of the worker.
    """

    worker: int

    @property
    def pid(self) -> int | None: ...

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""

    def send_signal(self, number: int) -> None:
        """Sends a signal to it; raises ProcessLookupError if it has ended."""

    def kill(self) -> None: ...


def kill_stuck(process: Killable, log: int, started: bool, forked: bool) -> str:
    """Kills a worker that does not answer; returns a text for an error that shows where the worker was stuck.

    Args:
        log: the descriptor of the file to which the worker writes its stack.
        started: the worker has started.
        forked: it inherited the memory of this process.
    """
    stack = _stack_of(process, log)
    process.kill()
    if started:
        # The stack does not always contain frames of JAX, so the hint is added whenever JAX is loaded.
        jax = forked and "jax" in sys.modules
        hint = "\nJAX can hang in a forked process; if that is the cause, pass start_method='forkserver'" if jax else ""
        return f"its worker (pid {process.pid}) was replaced; the stack of that worker was\n{stack}{hint}"
    calls_init_fn = rf'^  File "{re.escape(BatchMaker.start.__code__.co_filename)}", line \d+ in start$'
    init = ", because worker_init_fn had not returned" if re.search(calls_init_fn, stack, re.MULTILINE) else ""
    if f'File "{import_main.__code__.co_filename}"' in stack:
        cure = 'put the code that workers must not run under `if __name__ == "__main__":`'
        init = f", because it still ran the main script, which each worker imports ({cure})"
    hint = (
        "; perhaps it waits for a lock or a thread of the main program that the fork did not copy: "
        "if so, pass start_method='forkserver'"
        if forked
        else ""
    )
    return (
        f"its worker (pid {process.pid}) had not started yet{init}{hint}; the worker was replaced; the stack of that "
        f"worker was\n{stack}"
    )


def _stack_of(process: Killable, log: int) -> str:
    """The Python stack of a worker that does not answer, written by faulthandler inside it."""
    before = os.fstat(log).st_size
    try:
        process.send_signal(DUMP_SIGNAL)
    except ProcessLookupError:
        return "  (the worker is gone)\n"
    deadline = time.monotonic() + _STACK_S
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.01)
        now = os.fstat(log).st_size
        if now == size > before:
            break
        size = now
    text = os.pread(log, size - before, before).decode(errors="replace")
    text = text.partition(" in serve_lane\n")[0].rpartition("\n")[0] + "\n" if " in serve_lane\n" in text else text
    return text or "  (the worker does not react to signals)\n"
