"""`Bridge` and its iterator: the interface for the user; a thread (reader.py) reads another library's loader ahead.

source --> ReaderThread, in its thread --> BridgeIterator --> user
|  each delivery moves the position
v
Bridge: state_dict, load_state_dict, set_epoch, stats, close
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.util import Finalize
from time import perf_counter
from typing import Any

from ..arguments.arguments import check_pins, choose_output
from ..checks import check_int, check_timeout
from ..describe import call, counted, describe, short_repr
from ..errors import warn
from ..frameworks import state_from_json
from ..locks import Lock
from ..state import add_checksum, check_same, field, int_field, parse_state
from ..statistics.advice import advise_on_source
from ..statistics.stats import LoaderStats, summarize
from ..statistics.tally import EpochTally, Tally
from ..tree import leaves
from .reader import BridgeEpoch, Position, ReaderThread, Result
from .source import BridgeSource, convert


def bridge(
    source: Any,
    prefetch: int = 2,
    output: str | Callable[[Any], Any] | None = None,
    pin_memory: bool = False,
    timeout: float | None = 120,
) -> Bridge:
    """Wraps another library's loader in the interface of `DataLoader`, and reads its batches ahead in a thread.

    Args:
        source: an object that yields batches. It is an object that can be iterated again for each epoch (torch's
            DataLoader, a list); an iterator with `reset()`, which is called once between two epochs (`mx.io.DataIter`);
            or a function that returns such an object for each epoch. If the function has a parameter, it is called with
            the number of the epoch. If the source or its `sampler` has `set_epoch`, that is called with the number of
            the epoch, too.
        prefetch: the maximum number of batches that are read and not delivered; at least 1.
        output: the framework to which the arrays of a batch are converted, as for `DataLoader`.
        pin_memory: as for `DataLoader`.
        timeout: seconds after which waiting for a batch raises an error; None waits without limit.

    Returns:
        A `Bridge`, which yields the batches of the source. A `DataBatch` of `mx.io` stays a `DataBatch`, but its arrays
        are copied, because MXNet overwrites the arrays of earlier batches; with `output`, a `DataBatch` becomes a tuple
        of the arrays in `data` and `label`. Any other source must not change batches that it has returned.

    Raises:
        ValueError: an argument is wrong; the text names the argument, its value and what to pass instead.
        MissingExtraError: the framework of `output` is not installed.

    >>> with bridge(["a", "b"]) as batches:
    ...     for batch in batches:
    ...         print(batch, batches.state_dict()["batch"])
    a 1
    b 2
    """
    return Bridge(source, prefetch, output, pin_memory, timeout)


class Bridge:
    """A loader of another library with the interface of `DataLoader`; `bridge` makes it and documents its arguments.

    A bridge has one iterator at a time: `iter` starts the next epoch and ends the previous iterator. An exception of
    the source is raised in place of the batch. The iteration then continues if the source can continue.
    """

    def __init__(
        self,
        source: Any,
        prefetch: int = 2,
        output: str | Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        timeout: float | None = 120,
    ) -> None:
        self._sized, self._source = source, BridgeSource(source)
        self._prefetch = check_int("prefetch", prefetch, 1)
        check_pins(pin_memory, 0, output)
        check_timeout(timeout)
        self._timeout = timeout
        self._next = self._position = Position()  # where the next iteration starts; where the bridge stands now
        self._current: BridgeEpoch | None = None  # the epoch whose deliveries move the position
        self._lock = Lock()
        self._tally, self._counts = Tally(), EpochTally(0)
        finish = choose_output(output, pin_memory, 0)
        self._reader = ReaderThread(self._source, partial(convert, finish=finish, unpack=output is not None))
        # Also called when the program ends: the thread must not run another library's code while Python shuts down.
        self._close_reader = Finalize(self, self._reader.close, exitpriority=20)

    def __iter__(self) -> BridgeIterator:
        """Starts the next epoch. The previous iterator raises `LoaderClosed` from now on."""
        with self._lock:
            start = self._next
            self._current = epoch = self._reader.start(start, self._prefetch)
            self._next, self._position = Position(start.epoch + 1), start
            self._counts = self._tally.start(start.epoch)
            return BridgeIterator(self, epoch)

    def __len__(self) -> int:
        """The length of the source; raises TypeError if the source has no length."""
        return len(self._sized)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which is passed to the source's `set_epoch` or to the source function."""
        self._move_to(Position(check_int("epoch", epoch)))

    def state_dict(self) -> dict[str, Any]:
        """The position of the bridge after the last delivered batch, as JSON.

        The state contains the number of the epoch and of the batch. If the source (or the object that a source function
        returns) has `state_dict` and `load_state_dict`, the state also contains the state of the source at that batch.

        Raises:
            TypeError: the state of the source contains something other than JSON values and arrays of numbers.
        """
        position = self._position
        if isinstance(position.source, Exception):
            raise position.source
        about = {"epoch": position.epoch, "batch": position.batch, "length": self._source.length()}
        return add_checksum({**about, "source": position.source})

    def load_state_dict(self, state: Any) -> None:
        """Makes the next iteration resume at the position `state`, which this or another process has saved.

        A source without `state_dict` is read again from the start of the epoch, and must yield the same batches again;
        a RuntimeWarning says how many batches are read and skipped. If the source's `load_state_dict` fails, its error
        is raised in place of the first batch.

        Args:
            state: what `state_dict()` returned, or the same as JSON text.

        Raises:
            ValueError: the state does not fit this bridge, or was edited; the text names the field. Nothing has
                changed.
        """
        fields = parse_state(state)
        if "seed" in fields:
            raise ValueError("state: it was saved by a DataLoader, not by a bridge; load it into a DataLoader")
        epoch, batch, own = int_field(fields, "epoch"), int_field(fields, "batch"), field(fields, "source")
        check_same(fields, "length", self._source.length(), "this source")
        state_from_json(own)
        if batch and own is None:
            warn(
                f"resuming a bridge to {self._source.name} reads {batch:,} batches again, to skip them; a source with "
                "state_dict() and load_state_dict() resumes without reading them again",
            )
        self._move_to(Position(epoch, batch, own, load=True))

    def stats(self) -> LoaderStats:
        """How many batches were delivered, and how the program and the thread spent their time.

        The thread counts as one worker, and everything that it does as reading samples.
        """
        why = "a bridge reads its source in one thread"
        usage, window = self._reader.usage, self._prefetch
        stats = summarize(self._tally, usage, executor="thread", why=why, num_workers=1, window=window)
        return replace(stats, advice=advise_on_source(stats))

    def close(self) -> None:
        """Ends the thread; a second call does nothing.

        If the source is busy with a batch, `close` waits for half a second, and the thread ends after that batch.
        Delivered batches stay valid. `with bridge(...) as batches` closes the bridge at the end of the block. A bridge
        is also closed when it is deleted and when the program ends.
        """
        self._close_reader()

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._sized), *["closed"] * (not self._close_reader.still_active()))

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _move_to(self, position: Position) -> None:
        with self._lock:
            self._next = self._position = position
            self._current = None

    def _take(self, epoch: BridgeEpoch) -> Result:
        """Waits for the next result of an epoch, and moves the position."""
        start = perf_counter()
        result = self._reader.take(epoch, self._timeout)
        with self._lock:
            if result.position is not None and epoch is self._current:
                self._position = result.position
            if result.ended and epoch is self._current:  # if the epoch could not start, the next iteration tries again
                self._next = self._position
            if result.position is not None and not result.ended:
                number = result.position.batch - 1
                self._counts.count(result.batch, number, _samples_in(result.batch), result.made_s, start)
        return result


def _samples_in(batch: Any) -> int:
    """The length of the first array of a batch; 0 if it has none."""
    try:
        return next((len(leaf) for _, leaf in leaves(batch) if getattr(leaf, "shape", ())), 0)
    except Exception:  # arrays of the user may have no length, and nested tensors of torch have no shape
        return 0


class BridgeIterator(Iterator[Any]):
    """An iterator over one epoch of a bridge; after an error it continues if the source can continue."""

    def __init__(self, bridge: Bridge, epoch: BridgeEpoch) -> None:
        self._bridge: Bridge | None = bridge  # an iteration keeps its bridge open
        self._epoch = epoch
        self._lock = Lock()

    def __iter__(self) -> BridgeIterator:
        return self

    def __next__(self) -> Any:
        """The next batch.

        Raises:
            BatchTimeout: the batch took longer than `timeout`; the next call waits for the same batch again.
            LoaderClosed: the bridge was closed, or a newer iteration has started.
            Exception: any exception of the source, with a note that names the batch.
        """
        with self._lock:
            if self._bridge is None:
                raise StopIteration
            result = self._bridge._take(self._epoch)
            if result.ended:
                self.close()
            try:
                if result.error is not None or result.ended:
                    raise result.error or StopIteration
                return result.batch
            finally:
                self._epoch.permits.put(True)
                del result  # or the traceback of an error, with this frame, would keep the bridge open

    @short_repr
    def __repr__(self) -> str:
        bridge, epoch = self._bridge, self._epoch
        if bridge is None or epoch.stopped:
            return call(self, f"epoch {epoch.start.epoch}, ended")
        batches = f", {counted(bridge._position.batch, 'batch', 'batches')}" if epoch is bridge._current else ""
        return call(self, f"epoch {epoch.start.epoch}{batches} of {describe(bridge._sized)}")

    def close(self) -> None:
        """Ends the epoch, and drops batches that were read but not delivered. Deleting the iterator does the same."""
        self._bridge = None
        self._epoch.stop("this iterator was closed")

    def __del__(self) -> None:
        self.close()
