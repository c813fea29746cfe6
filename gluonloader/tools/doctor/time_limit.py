"""Interrupts code that takes too long, such as a sample that hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """Raised by a signal handler; not an Exception, because datasets may catch those."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block after some seconds, as soon as Python code runs; only in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
