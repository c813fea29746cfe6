"""`LoaderIterator`: the iterator over one epoch that a loader returns to the user."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from .checks import check_flags
from .describe import call, short_repr
from .errors import LoaderClosed, WorkerStartError, hide_own_frames
from .executors.base import check_not_inside
from .interrupts import from_signal_handler
from .loading.epoch import Delivered, Epoch
from .loading.epochs import Epochs
from .locks import Lock
from .tree import Batch
from .work.info import BatchInfo
from .work.task import Chunk


class LoaderIterator(Iterator[Batch]):
    """An iterator over one epoch of a loader; if a batch raised an error, `next` returns the following batch."""

    def __init__(self, epochs: Epochs, epoch: Epoch) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._epochs: Epochs | None = epochs  # keeps the workers alive until this epoch ends
        self._after_end = weakref.ref(epochs)  # for `flush` after the end
        self._epoch = epoch
        # By thread: a batch that is settled, until `next` returns it.
        self._kept: dict[int, tuple[Any, Delivered]] = {}
        self._last: Delivered | None = None  # of the batch that `next` returned last
        self._here = threading.local()  # `last`: the same, of the thread that reads the attribute

    def __iter__(self) -> LoaderIterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            BatchTimeout: the batch took longer than `timeout`.
            WorkerDied: the workers that made the batch died.
            WorkerStartError: the workers cannot start; the loader is now closed.
            Exception: any exception of the dataset or batchify_fn, with a note that names the batch and the sample.
        """
        thread = threading.get_ident()
        with self._locked_in_owner_process():
            try:
                kept = self._kept
                if thread not in kept:
                    kept[thread] = self._epoch.next()
                if not self._epoch.plan.in_flight and self._epoch.draws_ahead:
                    self._epoch.end_if_drawn()
            except StopIteration:
                raise
            except BaseException as error:  # also Ctrl-C
                error = self._explained(error)
                raise error  # GLUONLOADER_FULL_TRACEBACK=1 shows all frames
            finally:
                epochs = self._epochs  # read only once, since another thread may close this iterator
                if self._epoch.ended and epochs is not None:
                    epochs.finish(self._epoch)
                    self._epochs = None  # only now, so that an interrupted `finish` is repeated
        if thread not in kept:  # a signal handler has called `next`, and got the batch
            return self.__next__()
        batch: Batch
        batch, delivered = kept[thread]
        del kept[thread]  # no signal handler runs between this statement and the end of `next`
        self._last = self._here.last = delivered
        return batch

    @property
    def last(self) -> BatchInfo | None:
        """Which batch `next` returned last, and how it was made; None before the first batch.

        If several threads read this iterator, it is the last batch of the calling thread, if that has read a batch.
        """
        delivered: Delivered | None = getattr(self._here, "last", self._last)
        if delivered is None:
            return None
        task, times = delivered.task, (delivered.made_s, delivered.waited_s)
        chunk = task.work if isinstance(task.work, Chunk) else None
        where = (None, None) if chunk is None else (chunk.shard, chunk.number)
        counts = delivered.samples, delivered.errors
        return BatchInfo(task.epoch, task.batch, task.indices, delivered.worker, *times, *counts, *where)

    @property
    def epoch(self) -> int:
        """The number of the epoch that it reads."""
        return self._epoch.plan.epoch

    @property
    def ended(self) -> bool:
        """Whether the last batch was delivered, or the iterator was closed."""
        return self._epoch.ended

    @property
    def sampler(self) -> Any:
        """The sampler of this epoch; if you change it, call `flush()` afterwards. None for an iterable dataset."""
        return getattr(self._epoch.plan, "sampler", None)

    def flush(self) -> None:
        """Discards all batches that were not delivered, and draws them again from the sampler.

        So a change to the sampler, such as new weights, applies to the next batch. No sample is lost or repeated. After
        the last batch of an epoch, the change applies to the next epoch, also to what `auto_reload` has drawn of it.

        Raises:
            TypeError: your own sampler cannot return to the last delivered batch, because it has no `state_dict` and
                `load_state_dict`, or because `ranks` divide its order.
            LoaderClosed: the iterator was closed before its epoch had ended.
        """
        with self._locked_in_owner_process():
            if self._epoch.plan.finished:
                if (epochs := self._after_end()) is not None:
                    epochs.rewind_ahead()
                return
            self._live_epochs()
            self._epoch.rewind()

    def state_dict(self) -> dict[str, Any]:
        """The position of this epoch after the last delivered batch; see `DataLoader.state_dict`."""
        with self._lock:
            return self._live_epochs().state_of(self._epoch.plan)

    def load_state_dict(self, state: Any, new_batch_size: bool = False) -> None:
        """Makes this iterator continue at the position `state`; see `DataLoader.load_state_dict`."""
        check_flags(new_batch_size=new_batch_size)
        with self._locked_in_owner_process():
            self._live_epochs().move(self._epoch, state, bool(new_batch_size))
            self._kept = {}

    def close(self) -> None:
        """Ends the epoch and discards its undelivered batches. Deleting the iterator does the same.

        In a thread that waits in `next`, `next` raises StopIteration at once.
        """
        self._epochs = None
        self._kept = {}
        self._epoch.close()

    @short_repr
    def __repr__(self) -> str:
        epochs, epoch = self._epochs, self._epoch
        return call(self, f"epoch {epoch.plan.epoch}, ended" if epochs is None else epochs.progress_of(epoch))

    def __reduce__(self) -> Any:
        with self._lock:
            return _resumed, (self._live_epochs(), self.state_dict())

    def _explained(self, error: BaseException) -> BaseException:
        """The error that `next` raises instead of an error: mostly the same one, without the frames of the library."""
        epochs = self._epochs
        if from_signal_handler(error):
            return hide_own_frames(error)
        if isinstance(error, WorkerStartError) and self._epoch.workers_failed and epochs is not None:
            epochs.close()  # not if the dataset raised this error
        elif isinstance(error, LoaderClosed):
            if not threading.main_thread().is_alive() and threading.current_thread() is not threading.main_thread():
                raise SystemExit from None  # the program ends, and so does this daemon thread, without a traceback
            if self._epoch.plan.outdated and error.__cause__ is None:
                what = "a state was loaded after this iterator started, so the loader replaced its workers"
                error = LoaderClosed(f"{what}; make a new iterator with iter(loader)")
            elif epochs is not None and epochs.workers.block_ended:
                what = "the `with` block of the loader has ended, which has closed the loader and this iterator"
                error = LoaderClosed(f"{what}; iterate inside the block, or make a new loader")
            error.__suppress_context__ = True  # a traceback does not show the error that was replaced
        return hide_own_frames(error)

    def _locked_in_owner_process(self) -> Lock:
        """Returns the lock, for calls that need the workers."""
        if os.getpid() != self._pid:
            raise RuntimeError("this iterator belongs to the parent process; call iter(loader) in the forked child")
        check_not_inside(self._lock)
        return self._lock

    def _live_epochs(self) -> Epochs:
        if self._epochs is None:
            raise LoaderClosed("this iterator has ended or was closed; save and load positions of the loader instead")
        return self._epochs


def _resumed(epochs: Epochs, state: dict[str, Any]) -> LoaderIterator:
    epochs.load(state)
    return LoaderIterator(epochs, epochs.next())
