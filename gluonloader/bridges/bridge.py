"""`bridge`: a thread reads another library's loader ahead (reader.py); here is what the user sees of it.

source --> Reader, in its thread --> BridgeIterator --> user
|  each delivery moves the position
v
Bridge: state_dict, load_state_dict, set_epoch, stats, close
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.util import Finalize
from time import perf_counter
from typing import Any, Literal

from ..checks import check_int, check_timeout
from ..loading.arguments import check_pins, choose_output
from ..state import check_whole, field, int_field, opened, same, sealed
from .reader import Came, Position, Reader, Run
from .source import Convert, Source

__all__ = ["Bridge", "BridgeIterator", "BridgeStats", "bridge"]


@dataclass(frozen=True, slots=True)
class BridgeStats:
    """Where the time of a bridge went, over all its epochs.

    Attributes:
        batches: number of batches that were delivered.
        waited_s: seconds that your program waited for batches.
        made_s: seconds that the source, and `output`, took to make them.
        idle_s: seconds that `prefetch` batches lay ready and the thread waited for your program.
    """

    batches: int
    waited_s: float
    made_s: float
    idle_s: float

    @property
    def slower(self) -> Literal["source", "trainer"]:
        """Which of the two the other one waits for."""
        return "source" if self.waited_s > self.idle_s else "trainer"


def bridge(
    source: Any,
    prefetch: int = 2,
    output: str | Callable[[Any], Any] | None = None,
    pin_memory: bool = False,
    timeout: float | None = 120,
) -> Bridge:
    """Gives another library's loader the interface of `DataLoader`, and reads it ahead in a thread.

    Args:
        source: what gives batches: anything that can be iterated anew for each epoch (torch's DataLoader, a list);
            an iterator with `reset()`, which is called once between two epochs (`mx.io.DataIter`); or a function that
            makes one of these for each epoch. A function that needs an argument is told the number of the epoch. A
            source that has `set_epoch`, or whose `sampler` has, is told it as well.
        prefetch: most batches in flight, from reading to delivery; at least 1.
        output: what the arrays of a batch become, as for `DataLoader`.
        pin_memory: as for `DataLoader`.
        timeout: seconds after which a batch that is waited for is an error; None waits for ever.

    Returns:
        A `Bridge`. Its batches are those of the source. A `DataBatch` of `mx.io` stays one, with arrays of its own,
        since MXNet overwrites what it gave some batches ago; with `output` it becomes a tuple of the arrays in `data`
        and `label`. Any other source has to leave alone what it gave.

    Raises:
        ValueError: an argument is wrong; the text names it, its value and what would be right.
        MissingExtraError: the framework of `output` is not installed.

    >>> with bridge(["a", "b"]) as batches:
    ...     for batch in batches:
    ...         print(batch, batches.state_dict()["batch"])
    a 1
    b 2
    """
    return Bridge(source, prefetch, output, pin_memory, timeout)


class Bridge:
    """A native loader with the interface of `DataLoader`; `bridge` makes it and explains its arguments.

    It has one iteration at a time: `iter` begins the next epoch and ends the iterator before. What the source raises
    comes out in its place, and the iteration goes on as the source does.
    """

    def __init__(
        self,
        source: Any,
        prefetch: int = 2,
        output: str | Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        timeout: float | None = 120,
    ) -> None:
        self._sized, self._source = source, Source(source)
        self._prefetch = check_int("prefetch", prefetch, 1)
        check_pins(pin_memory, 0, output)
        check_timeout(timeout)
        self._timeout = timeout
        self._next = self._position = Position()  # where the next iteration begins; what was delivered last
        self._run: Run | None = None  # the one that moves the position
        self._lock = threading.Lock()
        self._batches, self._waited_s = 0, 0.0
        convert = Convert(choose_output(output, pin_memory, 0), unpack=output is not None)
        self._reader = Reader(self._source, convert)
        # At the end of the program too: then the thread must not be in a library's code any more.
        self._close_reader = Finalize(self, self._reader.close, exitpriority=20)

    def __iter__(self) -> BridgeIterator:
        """The next epoch. An iterator from before raises `LoaderClosed` from now on."""
        with self._lock:
            begin = self._next
            self._run = run = self._reader.begin(begin, self._prefetch)
            self._next, self._position = Position(begin.epoch + 1), begin
            return BridgeIterator(self, run)

    def __len__(self) -> int:
        """The source's own length; a TypeError where it has none."""
        return len(self._sized)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; the source is told, if it has `set_epoch` or is a function of it."""
        self._go_to(Position(check_int("epoch", epoch)))

    def state_dict(self) -> dict[str, Any]:
        """Where the bridge stands, as JSON: after the last batch that was delivered.

        It holds the numbers of epoch and batch; and the source's own state as it was then, where the source, or the
        iterator that a function makes, has `state_dict` and `load_state_dict`.

        Raises:
            TypeError: the source's own state is not JSON; arrays of numbers in it are fine.
        """
        position = self._position
        if isinstance(position.source, Exception):
            raise position.source
        about = {"epoch": position.epoch, "batch": position.batch, "length": self._source.length()}
        return sealed({**about, "source": position.source})

    def load_state_dict(self, state: Any) -> None:
        """Has the next iteration go on where `state` was saved, in this process or another.

        A source without a state of its own is read again from the start of the epoch, with a RuntimeWarning that says
        how far, so it has to give the same batches again. An error of the source's own `load_state_dict` comes with
        the first batch.

        Args:
            state: what `state_dict()` returned, or its JSON text.

        Raises:
            ValueError: it does not fit, or was changed; the text names the field. Nothing has changed.
        """
        fields = opened(state)
        if "seed" in fields:
            raise ValueError("state: saved by a DataLoader, and this is a bridge; load it into that DataLoader")
        epoch, batch, own = int_field(fields, "epoch"), int_field(fields, "batch"), field(fields, "source")
        same(fields, "length", self._source.length(), "the source here")
        check_whole(fields)
        if batch and own is None:
            warnings.warn(
                f"resuming a bridge to {self._source.name} reads {batch:,} batches again, to skip them; a source with "
                "state_dict() and load_state_dict() is put where it stood",
                RuntimeWarning,
                stacklevel=2,
            )
        self._go_to(Position(epoch, batch, own, load=True))

    def stats(self) -> BridgeStats:
        """Where the time went so far."""
        return BridgeStats(self._batches, self._waited_s, self._reader.made_s, self._reader.idle_s)

    def close(self) -> None:
        """Ends the thread; a second call does nothing.

        A source that is busy with a batch is waited for half a second; then it is left to end by itself. Batches that
        were delivered stay valid. `with bridge(...) as batches` closes at the end of the block; a bridge that is
        deleted, or still open when the program ends, is closed too.
        """
        self._close_reader()

    def __repr__(self) -> str:
        return f"<Bridge to {self._source.name}>"

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _go_to(self, position: Position) -> None:
        with self._lock:
            self._next = self._position = position
            self._run = None

    def _take(self, run: Run) -> Came:
        """What comes next in a run; the position moves."""
        began = perf_counter()
        try:
            came = self._reader.take(run, self._timeout)
        finally:
            self._waited_s += perf_counter() - began
        with self._lock:
            if came.position is not None and run is self._run:
                self._position = came.position
            if came.ended and run is self._run:  # an epoch that could not begin is tried again
                self._next = self._position
            self._batches += came.position is not None and not came.ended
        return came


class BridgeIterator(Iterator[Any]):
    """One epoch of a bridge; after a batch that raised, the iteration goes on as the source does."""

    def __init__(self, bridge: Bridge, run: Run) -> None:
        self._bridge: Bridge | None = bridge  # kept alive by the iteration
        self._run = run
        self._lock = threading.RLock()

    def __iter__(self) -> BridgeIterator:
        return self

    def __next__(self) -> Any:
        """The next batch.

        Raises:
            BatchTimeout: it took longer than `timeout`; another call waits for it again.
            LoaderClosed: the bridge was closed, or a newer iteration has begun.
            Exception: whatever the source raised, with a note that says where.
        """
        with self._lock:
            if self._bridge is None:
                raise StopIteration
            came = self._bridge._take(self._run)
            if came.ended:
                self.close()
            try:
                if came.error is not None or came.ended:
                    raise came.error or StopIteration
                return came.batch
            finally:
                self._run.permits.put(True)
                del came  # or an error would hold itself, by its traceback, and with it the bridge

    def close(self) -> None:
        """Breaks the epoch off: what was read ahead is dropped. Also done when the iterator is deleted."""
        self._bridge = None
        self._run.stop("this iterator was closed")

    def __del__(self) -> None:
        self.close()
