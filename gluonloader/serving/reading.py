"""The thread of a server that reads its loader: one item each time that the server asks for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from ..errors import LoaderClosed, WorkerStartError
from ..executors.lanes.remote import encode_error, shorten_error
from ..iterator import LoaderIterator
from ..loader import DataLoader
from .messages import INLINE_BYTES, Kind
from .parcel import Parcels
from .stream import Item


class Reading:
    """Reads a loader, epoch after epoch.

    Args:
        parcels: where the batches go.
        ring: is called each time that an item has been read, or the loader has ended.

    Attributes:
        busy: an item is being read.
        error: the error that has ended the loader; None if it goes on.
        epoch: of the newest item; None before the first.
        batches, made_s, idle_s: see `ServerStats`.
    """

    def __init__(self, loader: DataLoader[object], parcels: Parcels, who: str, ring: Callable[[], None]) -> None:
        self._loader, self._parcels, self._who, self._ring = loader, parcels, who, ring
        self.busy = False
        self.error: Exception | None = None
        self.epoch: int | None = None
        self.batches, self.made_s, self.idle_s = 0, 0.0, 0.0
        self._iterator: LoaderIterator[object] | None = None
        self._wanted = threading.Semaphore(0)
        self._closed = False
        self._read: deque[Item] = deque()
        self._thread = threading.Thread(target=self._run, name="gluonloader-serve-read", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Reads another item; only if it is not `busy`."""
        self.busy = True
        self._wanted.release()

    def take(self) -> list[Item]:
        """The items that were read since the last call."""
        taken = []
        while self._read:
            taken.append(self._read.popleft())
            self.busy = False
        return taken

    def close(self) -> None:
        """Ends the thread. The loader stays open."""
        self._closed = True
        self._parcels.stop_waiting()
        iterator = self._iterator
        if iterator is not None:
            iterator.close()
        self._wanted.release()
        self._thread.join()

    def _run(self) -> None:
        items = self._items()
        waiting_since = time.perf_counter()
        self._wanted.acquire()
        while not self._closed:
            start = time.perf_counter()
            try:
                item = next(items, None)
            except Exception as error:  # of `state_dict` of the user's dataset or sampler
                self.error, item = error, None
            end = time.perf_counter()
            self.idle_s += start - waiting_since
            self.made_s += end - start
            waiting_since = end
            if item is not None:
                self.epoch = item.epoch
                self._read.append(item)
            self._ring()
            if item is None:
                return
            self._wanted.acquire()

    def _items(self) -> Iterator[Item]:
        loader = self._loader
        while not self._closed:
            try:
                iterator = self._iterator = iter(loader)
            except Exception as error:  # the loader is closed, or its sampler has raised
                self.error = error
                return
            yield from self._items_of(iterator)
            if self.error is not None or self._closed:
                return
            yield Item(Kind.END, iterator.epoch, state=loader.state_dict())

    def _items_of(self, iterator: LoaderIterator[object]) -> Iterator[Item]:
        epoch, loader = iterator.epoch, self._loader
        while True:
            try:
                batch = next(iterator)
                last = iterator.last
                assert last is not None
                parcel = self._parcels.make(batch, loader.epochs.workers.executor(epoch))
                del batch
            except StopIteration:
                return
            except (LoaderClosed, WorkerStartError) as error:
                self.error = error
                return
            except Exception as error:
                data = encode_error(error, self._who)
                data = data if len(data) <= INLINE_BYTES else shorten_error(data, INLINE_BYTES)
                yield Item(Kind.ERROR, epoch, content=data, state=loader.state_dict())
            else:
                self.batches += 1
                yield Item(Kind.BATCH, epoch, last.number, parcel, loader.state_dict())
