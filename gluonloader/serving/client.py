"""`attach`: reads the batches of a loader that another program serves.

    connection --Packet--> batch --convert--> kept --acknowledge--> user

A batch stays in `_kept` from before its acknowledgement until `next` returns it; see NOTE [again] in connection.py. So
no batch is lost, and none comes twice.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, NoReturn

from ..arguments.arguments import choose_delivery
from ..checks import check_flags, check_int, check_number
from ..describe import call, short_repr
from ..errors import LoaderClosed, TransportError, hide_own_frames, warn
from ..executors.lanes.remote import decode_error
from ..interrupts import from_signal_handler
from ..locks import Lock
from ..memory.loans import BatchBytes
from ..memory.reduce import rebuild
from ..state import joined, range_with
from ..tree import Batch
from .connection import Connection
from .messages import Ask, Kind, Packet, check_name
from .stats import ServerStats

_WAIT_S: Final = 10.0  # how long the server may take to start


@dataclass(slots=True)
class Kept:
    """A batch, or the error of a batch, until `next` returns it.

    Attributes:
        connection, packet: which item it is.
        acknowledged: the server knows that it was received.
    """

    connection: Connection
    packet: Packet
    batch: Any = None
    error: BaseException | None = None
    acknowledged: bool = False


class ServedLoader(Generic[Batch]):
    """The batches that a server makes, as a loader; made by `attach`.

    Attributes:
        name: the name of the server.
        epoch: the number of the epoch that is read, or that comes next; None before the first batch.
    """

    def __init__(
        self,
        name: str,
        output: str | Callable[[Any], Any] | None,
        timeout: float | None,
        pin_memory: bool,
        wait: float,
    ) -> None:
        self.name, self._timeout = name, timeout
        self._arguments = name, output, timeout, pin_memory
        self._convert = choose_delivery(True, timeout, output, pin_memory, 0).convert
        self.epoch: int | None = None
        self._pid = os.getpid()
        self._lock = Lock()
        self._received: list[range] = []  # numbers of batches of the current epoch
        self._left = False  # whether `iter` leaves the current epoch, since a batch of it was read
        self._kept: dict[int, Kept] = {}  # by thread
        self._warned = False
        self._connection = Connection(name, wait, timeout)

    # -- as a loader --------------------------------------------------------------------------------------------------

    def __iter__(self) -> ServedIterator[Batch]:
        """Starts the next epoch, or joins the current epoch if no batch of it was read."""
        with self._locked():
            if self._left and self.epoch is not None:
                self._drop_kept()
                self._connection.tell((Ask.SKIP, self.epoch))
                self._start_epoch(self.epoch + 1)
        return ServedIterator(self)

    def __len__(self) -> int:
        """The number of batches in an epoch of the server's loader; TypeError if it is not known."""
        if self._connection.welcome.length is None:
            raise TypeError(f"the loader of the server {self.name!r} has no length; count the batches in the loop")
        return self._connection.welcome.length

    @property
    def batch_size(self) -> int | None:
        """The `batch_size` of the server's loader."""
        return self._connection.welcome.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Does nothing, since the server decides which epoch comes next; warns once if it is another one."""
        check_int("epoch", epoch)
        coming = None if self.epoch is None else self.epoch + self._left
        if coming not in (None, epoch) and not self._warned:
            self._warned = True
            warn(f"set_epoch({epoch}) has no effect: the server {self.name!r} decides, and epoch {coming} comes next")

    def state_dict(self) -> dict[str, Any]:
        """The position of the server's loader after the last batch that this program has received.

        Raises:
            LoaderClosed: the server has ended.
            BatchTimeout: the server does not answer.
            TypeError: the server's sampler or dataset has a state that JSON cannot store.
        """
        with self._locked():
            state: dict[str, Any] | None = self._connection.ask_facts()["state"]
        if state is None:
            raise TypeError("the sampler or dataset of the server has a state that JSON cannot store")
        return state

    def load_state_dict(self, state: Any) -> NoReturn:
        """Raises a TypeError: the server's loader has to load the state, before `serve`."""
        raise TypeError("load the state into the loader of the server before you call gluonloader.serve")

    def stats(self) -> ServerStats:
        """What the server knows of itself and all its consumers.

        Raises:
            LoaderClosed: the server has ended.
            BatchTimeout: the server does not answer.
        """
        with self._locked():
            stats: ServerStats = self._connection.ask_facts()["stats"]
        return stats

    def reconnect(self, wait: float = _WAIT_S) -> None:
        """Attaches to a new server of the same name, unless the server still runs.

        The next `for` loop, and iterators from before, continue after the last batch that was received.

        Args:
            wait: how many seconds to wait for the new server.

        Raises:
            ConnectionRefusedError: there is no server of this name.
        """
        with self._locked():
            if not self._connection.is_open():
                lost = f"reconnect() has left the server {self.name!r} and found no new one"
                self._leave(f"{lost}; call reconnect() again")
                self._connection = Connection(self.name, wait, self._timeout)
            self._left = False

    def close(self) -> None:
        """Leaves the server; a second call does nothing. Batches that were delivered stay valid.

        In a thread that waits in `next`, `next` raises LoaderClosed at once.
        """
        why = "this loader is closed; call attach again"
        self._connection.interrupt(why)
        with self._lock:
            self._leave(why)

    def __enter__(self) -> ServedLoader[Batch]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if not ends() and getattr(self, "_connection", None) is not None and os.getpid() == self._pid:
            self._connection.close("it was deleted")

    def __reduce__(self) -> Any:
        """A copy attaches to the server as another consumer, also in another process."""
        return ServedLoader, (*self._arguments, _WAIT_S)

    @short_repr
    def __repr__(self) -> str:
        about = ["no server"] if self._connection.ending is not None else [f"pid {self._connection.welcome.pid}"]
        return call(self, repr(self.name), *about)

    # -- reading ------------------------------------------------------------------------------------------------------

    def next_of(self, iterator: ServedIterator[Batch]) -> Batch:
        """The next batch of an iterator."""
        thread, kept = threading.get_ident(), self._kept
        with self._locked():
            self._acknowledge_kept()
            if thread not in kept:
                kept[thread] = self._take(iterator)
                self._acknowledge_kept()
        item = kept[thread]
        if item.error is not None:
            del kept[thread]
            raise item.error
        batch: Batch = item.batch
        del kept[thread]  # no signal handler runs between this statement and the end of `next`
        return batch

    def _take(self, iterator: ServedIterator[Batch]) -> Kept:
        """Builds the next batch of an iterator; raises StopIteration at the end of the epoch."""
        while not iterator.ended:
            packet = self._connection.first()
            if self._is_old(packet):
                self._connection.acknowledge(packet.number)
                continue
            if self.epoch is None and packet.kind is Kind.END:  # it has attached just before the end of an epoch
                self._start_epoch(packet.epoch + 1)
                continue
            if self.epoch is None or packet.epoch > self.epoch:
                self._start_epoch(packet.epoch)
            if iterator.epoch is None:
                iterator.epoch = packet.epoch
            if packet.epoch > iterator.epoch:
                break
            if packet.kind is Kind.END:
                self._start_epoch(packet.epoch + 1)
                break
            kept = self._build(packet)
            if kept is not None:
                self._left = True
                return kept
        iterator.ended = True
        raise StopIteration

    def _is_old(self, packet: Packet) -> bool:
        """Whether the program has received this batch from an earlier server, or has left its epoch."""
        if self.epoch is None or packet.epoch > self.epoch:
            return False
        if packet.epoch < self.epoch:
            return True
        return packet.kind is Kind.BATCH and range_with(self._received, packet.batch) is not None

    def _start_epoch(self, epoch: int) -> None:
        self.epoch, self._received, self._left = epoch, [], False

    def _build(self, packet: Packet) -> Kept | None:
        """The batch of a packet, or its error; None if the memory of the batch has to be sent again."""
        kept = Kept(self._connection, packet)
        if packet.kind is Kind.ERROR:
            kept.error = decode_error(packet.body)
            return kept
        source = self._connection.lend(packet)
        if source is None:
            return None
        try:
            kept.batch = built(source, packet)
            if self._convert is not None:
                kept.batch = self._convert(kept.batch)
        except Exception as error:
            if from_signal_handler(error):
                raise
            kept.batch, kept.error = None, error
        return kept

    def _acknowledge_kept(self) -> None:
        """Acknowledges what is kept, unless that was done before."""
        for thread, kept in list(self._kept.items()):
            if not kept.acknowledged:
                self._acknowledge(thread, kept)

    def _acknowledge(self, thread: int, kept: Kept) -> None:
        """Tells the server that a batch was received. If the server has ended, a new server sends the batch again."""
        try:
            kept.connection.acknowledge(kept.packet.number)
        except LoaderClosed:
            del self._kept[thread]
            raise
        number = kept.packet.batch
        if number >= 0:
            received = [*self._received, range(number, number + 1)]
            self._received = joined(sorted(received, key=attrgetter("start")))
        kept.acknowledged = True

    def _leave(self, why: str) -> None:
        self._connection.close(why)
        self._drop_kept()

    def _drop_kept(self) -> None:
        """Forgets what `next` has not returned since it was interrupted, unless it counts as received."""
        for thread, kept in list(self._kept.items()):
            if not kept.acknowledged:
                del self._kept[thread]

    def _locked(self) -> Lock:
        if os.getpid() != self._pid:
            raise RuntimeError("this loader belongs to the parent process; call attach in the forked child")
        return self._lock


def built(source: BatchBytes, packet: Packet) -> Any:
    """The batch of a packet.

    Raises:
        TransportError: this program cannot import a class of the batch.
    """
    try:
        return rebuild(source, packet.head)
    except (AttributeError, ImportError) as error:
        cure = "define it in a module that this program and the server import"
        raise TransportError(f"this program cannot import a class of the batch ({error}); {cure}") from error


class ServedIterator(Iterator[Batch]):
    """One epoch of a served loader.

    Attributes:
        epoch: its number; None before the first batch.
        ended: whether the epoch has ended.
    """

    def __init__(self, loader: ServedLoader[Batch]) -> None:
        self._loader = loader
        self.epoch: int | None = None
        self.ended = False

    def __iter__(self) -> ServedIterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            BatchTimeout: no batch came within `timeout` seconds.
            LoaderClosed: the server has ended, or the loader was closed.
            Exception: the error that the loader of the server has raised for this batch.
        """
        try:
            return self._loader.next_of(self)
        except StopIteration:
            raise
        except BaseException as error:  # also Ctrl-C
            error = hide_own_frames(error)
            raise error  # GLUONLOADER_FULL_TRACEBACK=1 shows all frames


def attach(
    name: str,
    output: str | Callable[[Any], Any] | None = None,
    timeout: float | None = 120,
    pin_memory: bool = False,
    wait: float = _WAIT_S,
) -> ServedLoader[Any]:
    """Reads the batches of the loader that another program of the same user on this machine serves.

    NumPy arrays of a batch are read-only, since other programs read the same memory. For tensors,
    pass `output="torch"`, which copies: an operation in place on `torch.from_numpy(array)` ends the program by SIGSEGV.

    Args:
        name: the name of the server.
        output, timeout, pin_memory: as for `DataLoader`.
        wait: how many seconds to wait until the server runs and answers. A server that runs has at least 1 s to answer.

    Returns:
        A `ServedLoader`. Iterate over it as over a loader; close it when you are done, since others may wait for it.

    Raises:
        ValueError: an argument is wrong.
        ConnectionRefusedError: no server of this name runs, it does not answer, or it has another version of
            gluonloader.
    """
    check_name(name)
    check_flags(pin_memory=pin_memory)
    check_number("wait", wait, 0, "must be a number of seconds >= 0")
    return ServedLoader(name, output, timeout, bool(pin_memory), wait)
