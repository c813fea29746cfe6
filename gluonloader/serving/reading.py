"""The thread of a server that reads its loader: one item each time that the server asks for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..errors import LoaderClosed, WorkerStartError
from ..executors.lanes.lane_executor import LaneExecutor
from ..executors.lanes.remote import encode_error, shorten_error
from ..iterator import LoaderIterator
from ..loader import DataLoader
from .distribution import Item
from .messages import INLINE_BYTES, Kind
from .parcel import Parcels

_CLOSING_S: Final = 0.5  # how long `close` waits for the thread


class LoaderThread:
    """Reads a loader, epoch after epoch.

    Args:
        iterator: the first epoch.
        parcels: where the batches go.
        ring: is called each time that an item has been read, or the loader has ended.

    Attributes:
        busy: an item is being read.
        error: the error that has ended the loader; None if it goes on.
        epoch: of the newest item; None before the first.
        batches, made_s: see `ServerStats`.
    """

    def __init__(
        self,
        loader: DataLoader[object],
        iterator: LoaderIterator[object],
        parcels: Parcels,
        who: str,
        ring: Callable[[], None],
    ) -> None:
        self._loader, self._parcels, self._who, self._ring = loader, parcels, who, ring
        self._iterator = iterator
        self.busy = False
        self.error: BaseException | None = None
        self.epoch: int | None = None
        self.batches, self.made_s, self._idle_s = 0, 0.0, 0.0
        self._idle_since = time.perf_counter()
        self._wanted = threading.Semaphore(0)
        self._closed = False
        self._read: deque[Item] = deque()
        self._thread = threading.Thread(target=self._run, name="gluonloader-serve-read", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def read_one(self) -> None:
        """Reads another item; only if it is not `busy`."""
        self.busy = True
        self._wanted.release()

    def idle(self) -> float:
        """For how many seconds the thread has waited for `read_one`, also now."""
        return self._idle_s + (0.0 if self.busy else time.perf_counter() - self._idle_since)

    def take(self) -> list[Item]:
        """The items that were read since the last call."""
        taken = []
        while self._read:
            taken.append(self._read.popleft())
            self.busy = False
        return taken

    def close(self) -> None:
        """Ends the thread, and waits up to half a second for its end: a slow sample cannot be stopped.

        The loader stays open.
        """
        self._closed = True
        self._parcels.stop_waiting()
        self._iterator.close()
        self._wanted.release()
        if self._thread.ident is not None:
            self._thread.join(_CLOSING_S)
        self._iterator.close()  # perhaps another one

    def _run(self) -> None:
        items = self._items()
        self._wanted.acquire()
        while not self._closed:
            start = time.perf_counter()
            try:
                item = next(items, None)
            except BaseException as error:  # of `state_dict` of the user's dataset or sampler
                self.error, item = error, None
            end = time.perf_counter()
            self._idle_s += start - self._idle_since
            self.made_s += end - start
            self._idle_since = end
            if item is not None:
                self.epoch = item.epoch
                self._read.append(item)
            self._ring()
            if item is None:
                return
            self._wanted.acquire()

    def _items(self) -> Iterator[Item]:
        while True:
            iterator = self._iterator
            yield from self._items_of(iterator)
            if self.error is not None or self._closed:
                return
            self._start_next(iterator)
            if self.error is not None:
                return
            yield Item(Kind.END, iterator.epoch, state=state_of(self._iterator))

    def _start_next(self, ended: LoaderIterator[object]) -> None:
        """Starts the next epoch, unless that was done: its start is the position after the last batch of this one."""
        if self._iterator is ended:
            try:
                self._iterator = iter(self._loader)
            except Exception as error:  # the loader is closed, or its sampler has raised
                self.error = error

    def _items_of(self, iterator: LoaderIterator[object]) -> Iterator[Item]:
        epoch, executor = iterator.epoch, self._loader.epochs.workers.executor(iterator.epoch)
        if isinstance(executor, LaneExecutor):
            executor.deliver_whole()
        while True:
            try:
                batch = next(iterator)
                last = iterator.last
                assert last is not None
                parcel = self._parcels.make(batch, executor)
                del batch
                item = Item(Kind.BATCH, epoch, last.number, parcel)
                self.batches += 1
            except StopIteration:
                return
            except (LoaderClosed, WorkerStartError) as error:
                self.error = error
                return
            except BaseException as error:  # a dataset may raise KeyboardInterrupt
                data = encode_error(error, self._who)
                data = data if len(data) <= INLINE_BYTES else shorten_error(data, INLINE_BYTES)
                item = Item(Kind.ERROR, epoch, content=data)
            if iterator.ended and not self._closed:
                self._start_next(iterator)
            item.state = state_of(self._iterator)
            yield item


def state_of(iterator: LoaderIterator[object]) -> dict[str, Any] | None:
    """The position of an iterator; None if its sampler or dataset has a state that JSON cannot store."""
    try:
        return iterator.state_dict()
    except (TypeError, LoaderClosed):
        return None
