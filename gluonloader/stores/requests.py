"""Requests to a store: how many run at a time, which are repeated, and what is tried again.

    start(block) --> a thread: get, keep (write the file) --> ended, and the fetcher is woken

NOTE [one file]: a request that takes much longer than others is made a second time, and the first answer counts. Only
the thread with the first answer writes the file, so that no block occupies more space than room was made for.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from ..locks import Lock
from ..messages import message
from .source import Fault

_FIRST_PAUSE_S: Final = 0.1  # before a failed request is made again; it doubles each time
_RECENT: Final = 200  # requests from whose durations is seen which ones are slow
_FEWEST: Final = 20
_SLOW: Final = 3.0  # times as long as 95 of 100 requests
_LEAST_SLOW_S: Final = 0.5
_REPEATED: Final = 0.01  # the share of requests that may be made a second time
_HALVED_S: Final = 1.0  # how long the number of requests stays as it is, after it was halved

T = TypeVar("T", bound=Hashable)


@dataclass(eq=False)
class StoreRequest(Generic[T]):
    """A request that runs.

    Attributes:
        what: what is requested.
        started: when.
        copies: how many times it runs now.
        answered: the first answer is there; see NOTE [one file].
    """

    what: T
    started: float
    copies: int = 1
    answered: bool = False
    lock: Lock = field(default_factory=Lock)


@message(frozen=True, slots=True)
class End(Generic[T]):
    """A request has ended.

    Attributes:
        error: why it has failed; None if it has not.
        nbytes: of the answer, if it was the first one; see NOTE [one file].
    """

    request: StoreRequest[T]
    error: BaseException | None = None
    nbytes: int | None = None


@dataclass(slots=True)
class _Pause:
    """After a failed request."""

    until: float
    tries: int


class Requests(Generic[T]):
    """Runs requests in threads, one thread for each.

    Args:
        get: what the thread of a request does first, e.g. receives data.
        keep: what the first thread that has an answer does with it.
        wake: is called by the thread of a request when it has finished.
        most: number of requests at a time.
        longest_pause_s: seconds until a request that has failed is made again, at most.

    Attributes:
        made, repeated, failed: how many requests were made, a second time, in vain.
        fetched: bytes of all answers.
        trouble: by what was requested: why the last try has failed.
    """

    def __init__(
        self,
        get: Callable[[T], bytes],
        keep: Callable[[T, bytes], None],
        wake: Callable[[], None],
        most: int,
        longest_pause_s: float,
    ) -> None:
        self._get, self._keep, self._wake, self._most = get, keep, wake, most
        self._longest_pause_s = longest_pause_s
        self._allowed = float(most)
        self._halved = 0.0
        self.running: dict[T, StoreRequest[T]] = {}
        self._ends: deque[End[T]] = deque()
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._pauses: dict[T, _Pause] = {}
        self.trouble: dict[T, str] = {}
        self.made = self.repeated = self.failed = self.fetched = 0

    @property
    def free(self) -> bool:
        """Whether another request may be started."""
        return sum(request.copies for request in self.running.values()) < int(self._allowed)

    def may_start(self, what: T) -> bool:
        """Whether it does not run, and was not tried just now."""
        pause = self._pauses.get(what)
        return what not in self.running and (pause is None or time.monotonic() >= pause.until)

    def start(self, what: T) -> None:
        request = self.running[what] = StoreRequest(what, time.monotonic())
        self._run(request)

    def repeat_slow(self) -> None:
        """Makes slow requests a second time, unless these are too many."""
        slow_s = self._slow_s()
        if slow_s is None:
            return
        now = time.monotonic()
        for request in self.running.values():
            if self.repeated + 1 > _REPEATED * self.made + 1 or not self.free:
                return
            if request.copies == 1 and now - request.started > slow_s:
                request.copies += 1
                self.repeated += 1
                self._run(request)

    def ended(self) -> list[End[T]]:
        """The requests that have ended since the last call."""
        found = []
        while self._ends:
            end = self._ends.popleft()
            request = end.request
            request.copies -= 1
            if end.nbytes is None and (request.answered or request.copies):
                continue  # the other copy was first, or may still succeed
            del self.running[request.what]
            self.fetched += end.nbytes or 0
            self._judge(end)
            found.append(end)
        return found

    def wait_s(self) -> float | None:
        """After how many seconds to look again at pauses and slow requests; None if there are none."""
        now = time.monotonic()
        waits = [max(0.0, pause.until - now) for pause in self._pauses.values() if pause.until > now]
        if self.running:
            waits.append(_LEAST_SLOW_S)
        return min(waits, default=None)

    def forget(self, what: T) -> None:
        """It is not wanted any more."""
        self._pauses.pop(what, None)
        self.trouble.pop(what, None)

    def forget_others(self, wanted: Container[T]) -> None:
        """All others are not wanted any more."""
        for what in [what for what in self._pauses if what not in wanted]:
            self.forget(what)

    def _run(self, request: StoreRequest[T]) -> None:
        self.made += 1
        threading.Thread(target=self._work, args=(request,), name="gluonloader-request", daemon=True).start()

    def _work(self, request: StoreRequest[T]) -> None:
        error, nbytes = None, None
        try:
            data = self._get(request.what)
            with request.lock:
                if request.answered:
                    return
                request.answered = True
            nbytes = len(data)
            self._keep(request.what, data)
        except BaseException as failure:  # also a panic of obstore
            error = failure
        self._ends.append(End(request, error, nbytes))
        self._wake()

    def _judge(self, end: End[T]) -> None:
        """Learns from the end of a request."""
        what, error, now = end.request.what, end.error, time.monotonic()
        if error is None:
            self._seconds.append(now - end.request.started)
            self._allowed = min(self._most, self._allowed + 1 / self._allowed)
            self.forget(what)
            return
        self.failed += 1
        if isinstance(error, Fault) and error.kind == "throttled" and now - self._halved > _HALVED_S:
            self._allowed, self._halved = max(1.0, self._allowed / 2), now
        known = self._pauses.get(what)
        tries = 1 if known is None else known.tries + 1
        pause_s = min(self._longest_pause_s, _FIRST_PAUSE_S * 2.0 ** (tries - 1)) * random.uniform(0.5, 1)
        self._pauses[what] = _Pause(now + pause_s, tries)
        self.trouble[what] = str(error)

    def _slow_s(self) -> float | None:
        """After how many seconds a request is slow; None if it is not known yet."""
        if len(self._seconds) < _FEWEST:
            return None
        seconds = sorted(self._seconds)
        return max(_LEAST_SLOW_S, _SLOW * seconds[int(0.95 * len(seconds))])


def is_disk_full(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_final(error: Any) -> bool:
    """Whether it makes no sense to try again."""
    return isinstance(error, Fault) and error.kind in ("missing", "changed", "refused", "invalid")
