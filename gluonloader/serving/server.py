"""`serve`: one loader makes the batches for several programs.

    thread "read"    loader --next--> Item --+--> thread "serve": distribution --Packet--> consumer, another process
                       ^                     |                      ^
                       +-- one item more ----+                      +-- acknowledge, release

The two threads share only `LoaderThread`. All other state belongs to the thread "serve", which holds `_lock` while it
works; the methods of `Server` take it, too. reading.py reads the loader, distribution.py decides who gets what,
parcel.py finds the memory of a batch, and consumers.py has the connections. The other side of them is client.py.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import sys
import threading
import time
from typing import Any, Final, Literal

from ..checks import check_int
from ..describe import call, describe, short_repr
from ..errors import bad_argument, explain_arguments, logger, text_of
from ..interrupts import Uninterrupted
from ..loader import DataLoader
from ..locks import Lock
from ..wire.ends import close_end, is_ready, open_pair
from ..work.core_wait import give_way
from .consumers import Consumers
from .distribution import Distribution
from .messages import ConsumerWelcome, check_name
from .parcel import Parcels
from .reading import LoaderThread, state_of
from .stats import ConsumerStats, ServerStats

_PATIENCE_S: Final = 30.0  # how long the consumers wait for one of them before the log says so
_LOOK_S: Final = 1.0  # how often the server looks whether they still wait
_WINDOW: Final = 4  # items that the slowest consumer may be behind
_EACH: Final = (
    'each consumer gets each batch; remove it. Ranks that divide an epoch pass ranks with share="node" to their own '
    "loaders; see docs/processes.md"
)


class Server:
    """Serves a loader to the programs that call `attach`; made by `serve`."""

    def __init__(self, loader: DataLoader[Any], name: str, slow: str, consumers: int) -> None:
        self.name, self._least = name, consumers
        self._described = describe(loader)
        iterator = iter(loader)
        self._lock = Lock()
        self._distribution = Distribution(_WINDOW, slow == "skip", state_of(iterator))
        self._begun = False  # as many consumers have attached as `consumers` says
        self._waiting_since: float | None = None  # since when consumers wait for another one
        self._closing = self._warned = False
        self._failure: Exception | None = None  # of the thread "serve"
        self._consumers = Consumers(name, self._distribution, _welcome(loader), self._facts)
        self._running, self._last_end = open_pair()  # connected as long as the thread "serve" runs
        self._parcels = Parcels(_WINDOW, loader.epochs.workers.options.memory_limit)
        who = f"the server {name!r} (pid {os.getpid()})"
        self._reading = LoaderThread(loader, iterator, self._parcels, who, self._consumers.wake)
        self._thread = threading.Thread(target=self._run, name="gluonloader-serve", daemon=True)
        try:
            self._reading.start()
            self._thread.start()
            atexit.register(self.close)
        except BaseException:  # Ctrl-C
            self._closing = True
            self._consumers.wake()
            if self._thread.ident is None:
                self._end("it was interrupted while it started")
            raise

    # -- for the program ----------------------------------------------------------------------------------------------

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until `close()` is called, or the loader has ended with an error.

        Args:
            seconds: how long to wait at most; None for no limit.

        Returns:
            Whether the server has ended.

        Raises:
            Exception: the error that has ended the loader, for example `WorkerStartError`.
        """
        if not self._await_end(seconds):
            return False
        error = self._failure or self._reading.error
        if error is not None and not self._closing:
            raise error
        return True

    def state_dict(self) -> dict[str, Any]:
        """The position up to which all consumers have received all batches, for `loader.load_state_dict`.

        A new server, whose loader has loaded this state, continues there.

        Raises:
            TypeError: the state of your own sampler or dataset contains something that JSON does not have.
        """
        with Uninterrupted(), self._lock:  # a signal handler may close the server, which waits for the thread
            state = self._distribution.state
        if state is None:
            raise TypeError("the sampler or dataset of the loader has a state that JSON cannot store")
        return state

    def stats(self) -> ServerStats:
        """How many batches each consumer has received, and for whom the others wait."""
        with Uninterrupted(), self._lock:
            return self._stats()

    def close(self) -> None:
        """Tells all consumers that the server ends; a second call does nothing. The loader stays open.

        If the loader has no workers and makes a batch just now, this call waits up to half a second for the batch.
        """
        atexit.unregister(self.close)
        self._closing = True
        self._consumers.wake()
        self._await_end(None)
        close_end(self._running)

    def _await_end(self, seconds: float | None) -> bool:
        """Waits for the thread "serve". Not by `join`: before Python 3.13, Ctrl-C in it makes the thread look ended."""
        try:
            return is_ready(self._running, select.POLLIN, math.inf if seconds is None else seconds)
        except ValueError:  # `close` has closed the socket, perhaps in another thread just now
            return True

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @short_repr
    def __repr__(self) -> str:
        closed = ["closed"] * self._closing
        return call(self, repr(self.name), self._described, *closed)

    # -- the thread "serve" -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        give_way()  # otherwise a consumer that acknowledges a batch waits until this thread has handled it
        why = "it was closed"
        try:
            self._serve()
            error = self._reading.error
            if error is not None:
                why = f"its loader raised {type(error).__name__}: {text_of(error)}"
        except Exception as error:
            self._failure, why = error, f"it failed: {type(error).__name__}: {text_of(error)}"
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        with self._lock:
            self._consumers.end(why)
        self._reading.close()
        self._parcels.close()
        close_end(self._last_end)

    def _serve(self) -> None:
        while not self._closing and self._reading.error is None:
            with self._lock:
                timeout_s = self._advance()
            for descriptor, _ in self._consumers.poll.poll(None if timeout_s is None else 1000 * timeout_s):
                with self._lock:
                    self._consumers.handle(descriptor)

    def _advance(self) -> float | None:
        """Does everything that is possible now; returns after how many seconds to look again, None for never."""
        for item in self._reading.take():
            self._distribution.add(item)
        self._read_on()
        while self._parcels.retired:
            self._consumers.retire(self._parcels.retired.popleft())
        retry_s = self._consumers.send_due()
        for item in self._distribution.take_freed():
            item.content.free()
            item.content = None
        self._read_on()  # what was sent may have made room
        if not self._waits_for_slow():
            return retry_s
        return _LOOK_S if retry_s is None else min(retry_s, _LOOK_S)

    def _read_on(self) -> None:
        self._begun = self._begun or len(self._consumers.clients) >= self._least
        if self._begun and not self._reading.busy and self._distribution.wants():
            self._reading.read_one()

    def _waited_for(self) -> list[int]:
        return self._distribution.waits_for(full=self._parcels.waits)

    def _cure(self) -> str:
        """What to do about a consumer for which the others wait."""
        return "end it, or raise memory_limit" if self._parcels.waits else 'end it, or pass slow="skip" to serve'

    def _waits_for_slow(self) -> bool:
        """Whether consumers wait for another one; logs once if that takes long."""
        slow = self._waited_for()
        if not slow or self._warned:
            self._waiting_since = None
            return False
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since > _PATIENCE_S:
            self._warned = True
            pids = ", ".join(str(self._consumers.clients[number].pid) for number in slow)
            text = "server %r: consumers have waited %.0f s for pid %s; %s"
            logger().warning(text, self.name, _PATIENCE_S, pids, self._cure())
        return True

    # -- what consumers ask -------------------------------------------------------------------------------------------

    def _facts(self, consumer: int) -> dict[str, Any]:
        state = self._distribution.places[consumer].state or self._distribution.state
        slow = [self._consumers.clients[number].pid for number in self._waited_for() if number != consumer]
        return {"stats": self._stats(), "state": state, "slow": slow, "cure": self._cure()}

    def _stats(self) -> ServerStats:
        reading, distribution = self._reading, self._distribution
        slow, attached = self._waited_for(), self._consumers.clients
        consumers = tuple(
            ConsumerStats(attached[number].pid, place.received, place.skipped, place.kept, number in slow)
            for number, place in distribution.places.items()
        )
        counted = reading.epoch, reading.batches, self._parcels.copies, reading.made_s, reading.idle()
        return ServerStats(self.name, os.getpid(), *counted, consumers)


@explain_arguments(each=_EACH)
def serve(
    loader: DataLoader[Any],
    name: str,
    slow: Literal["wait", "skip"] = "wait",
    consumers: int = 1,
) -> Server:
    """Serves the batches of a loader to other programs of the same user on this machine, which call `attach(name)`.

    The server runs in threads of this process, and makes batches while at least one consumer is attached. Batches that
    worker processes have made are not copied. Use a program that does nothing else; see `docs/processes.md`.

    Args:
        loader: a `DataLoader`, without `output`: each consumer chooses its own.
        name: 1 to 64 ASCII letters, digits and characters of `_.:-`; no other running server of this user has it.
        slow: if a consumer is 4 batches behind, "wait" lets the others wait for it; "skip" lets it miss the oldest
            batches.
        consumers: how many consumers must be attached before the first batch is made.

    Returns:
        The `Server`; call its method `wait()` to serve until the program is interrupted.

    Raises:
        ValueError: an argument is wrong, or a server of this name runs already.
        OSError: the system is not Linux.
    """
    if not isinstance(loader, DataLoader):
        raise bad_argument("loader", loader, "must be a gluonloader.DataLoader")
    check_name(name)
    if slow not in ("wait", "skip"):
        raise bad_argument("slow", slow, 'must be "wait" or "skip"')
    if sys.platform != "linux":
        raise OSError(f"gluonloader.serve needs Linux; this platform is {sys.platform!r}")
    if loader.epochs.delivery.convert is not None:
        right = 'remove output and pin_memory here, and pass them to attach, e.g. output="torch"'
        raise bad_argument("loader", loader, right)
    return Server(loader, name, slow, check_int("consumers", consumers, 1))


def _welcome(loader: DataLoader[Any]) -> ConsumerWelcome:
    try:
        length: int | None = len(loader)
    except Exception:  # the dataset or the sampler has no length
        length = None
    batch_size = loader.batch_size
    return ConsumerWelcome(os.getpid(), length, None if batch_size is None else int(batch_size))
