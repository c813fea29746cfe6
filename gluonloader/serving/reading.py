"""The thread of a server that reads its loader: one item each time that the server asks for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..errors import LoaderClosed, WorkerStartError
from ..executors.lanes.lane_executor import LaneExecutor
from ..executors.lanes.remote import encode_error, shorten_error
from ..iterator import LoaderIterator
from ..loader import DataLoader
from .distribution import Item
from .messages import BODY_BYTES, Kind
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
        self._iterator = self._following = iterator  # of the epoch that is read; of the item that comes next
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
        self._following.close()
        self._wanted.release()
        if self._thread.ident is not None:
            self._thread.join(_CLOSING_S)
        self._following.close()  # perhaps another one

    def _run(self) -> None:
        self._wanted.acquire()
        while not self._closed:
            start = time.perf_counter()
            try:
                item = self._next_item()
            except BaseException as error:  # the loader has ended, or a method of the user's sampler has raised
                self.error = error
                self._ring()
                return
            end = time.perf_counter()
            self._idle_s += start - self._idle_since
            self.made_s += end - start
            self._idle_since = end
            self.epoch = item.epoch
            self._read.append(item)
            self._ring()
            self._wanted.acquire()

    def _next_item(self) -> Item:
        """Reads an item. Raises the error that ends the loader."""
        iterator = self._iterator
        epoch = iterator.epoch
        executor = self._loader.epochs.workers.executor(epoch)
        if isinstance(executor, LaneExecutor):
            executor.deliver_whole()
        try:
            batch = next(iterator)
            assert iterator.last is not None
            item = Item(Kind.BATCH, epoch, iterator.last.number, self._parcels.make(batch, executor))
            self.batches += 1
        except StopIteration:
            item = Item(Kind.END, epoch)
        except (LoaderClosed, WorkerStartError):
            raise
        except BaseException as error:  # a dataset may raise KeyboardInterrupt
            data = encode_error(error, self._who)
            data = data if len(data) <= BODY_BYTES else shorten_error(data, BODY_BYTES)
            item = Item(Kind.ERROR, epoch, content=data)
        if iterator.ended and self._following is iterator and not self._closed:
            self._following = iter(self._loader)  # its start is the position after the last batch of this epoch
        if item.kind is Kind.END:
            self._iterator = self._following
        item.state = state_of(self._following)
        return item


def state_of(iterator: LoaderIterator[object]) -> dict[str, Any] | None:
    """The position of an iterator; None if its sampler or dataset has a state that JSON cannot store."""
    try:
        return iterator.state_dict()
    except (TypeError, LoaderClosed):
        return None
