"""`DataLoader` and its iterator: the one file that knows every part.

batch sampler --indices--> window (at most `prefetch` batches in flight)
|  Task(epoch, batch, seed, indices)
v
executor: serial | thread | process
|  Outcome, through the iterator's inbox
v
window --in order, or as completed--> finish (arrays of `output`, pinned) --> user
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.util import Finalize
from typing import Any, NoReturn

from .arguments import (
    ExecutorName,
    as_list,
    check_dataset,
    check_flags,
    check_functions,
    check_int,
    check_pins,
    choose_batch_sampler,
    choose_executor,
    choose_finish,
    choose_start_method,
    parse_bytes,
)
from .batchify import default_batchify
from .errors import LoaderClosed, WorkerStartError, bad_argument
from .executors.base import Executor, Inbox, Job, Outcome, Task
from .executors.process import ProcessExecutor
from .executors.serial import SerialExecutor
from .executors.thread import ThreadExecutor
from .randomness import batch_seed, draw_seed
from .sampler import BatchPass, LastBatch, iterate
from .window import Window

__all__ = ["DataLoader", "LoaderIterator"]

Finish = Callable[[Any], Any] | None


class DataLoader:
    """Loads batches of a dataset, ahead of their use, in worker processes or threads.

    The first fourteen arguments are those of `mxnet.gluon.data.DataLoader`, in its order. Workers start here, once,
    and serve every epoch until `close()`.

    Args:
        dataset: any object with `__len__` and `__getitem__`; a list is one.
        batch_size: samples in a batch.
        shuffle: a new random order each epoch, a function of `seed` and the epoch's number.
        sampler: instead of `shuffle`: any sized iterable of indices.
        last_batch: 'keep' (default), 'discard', or 'rollover' into the next epoch.
        batch_sampler: instead of the four above: any iterable of lists of indices.
        batchify_fn: makes a batch from the list of its samples; default `default_batchify`.
        num_workers: number of workers; 0 makes each batch in the caller when it is asked for.
        pin_memory: put arrays of torch and MXNet into page-locked memory, for fast copies to a device; without a
            device they stay where they are, with a warning.
        pin_device_id: the device that MXNet pins memory for.
        prefetch: most batches in flight, over all workers, from drawing their indices to delivery; default
            `2 * num_workers`, at least 1.
        thread_pool: with workers: use threads, as `executor="thread"`.
        timeout: seconds after which a batch that is waited for is an error; None waits for ever. Not with 0 workers.
        auto_reload: begin the next epoch's window as soon as this one has delivered its last batch.
        executor: "serial", "thread" or "process"; by default from `num_workers` and `thread_pool`.
        output: what the arrays of a batch become: "numpy", "mxnet", "torch", "jax", or a function of one array. By
            default they stay what they are: a batch of torch tensors is a torch tensor. Memory is shared, not
            copied, where the framework can; arrays of texts, times and objects stay NumPy's.
        seed: of order and augmentation; None draws one from NumPy's global generator.
        in_order: deliver in the sampler's order; False delivers each batch as soon as it is made.
        worker_init_fn: called once in each worker with its number, before any sample.
        start_method: "fork", "forkserver" or "spawn", for processes. The default is what
            `multiprocessing.set_start_method` chose, else fork on Linux, the platform's own elsewhere: fork starts
            in milliseconds, takes any dataset and needs no `__main__` guard. Where threads hold locks or compute
            while workers start, use "forkserver"; see `docs/workers.md`.
        max_retries: how often a batch that killed its worker is tried again before it is an error.
        memory_limit: most shared memory for batches, in bytes or as "256MB"; None for no limit.

    Raises:
        ValueError: an argument is wrong; the text names it, its value and what would be right.
        MissingExtraError: the framework of `output` is not installed.
        TransportError: `start_method` has to pickle the dataset, which fails.

    >>> loader = DataLoader([(i, -i) for i in range(5)], batch_size=2)
    >>> for first, second in loader:
    ...     print(first, second)
    [0 1] [ 0 -1]
    [2 3] [-2 -3]
    [4] [-4]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[Sequence[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float | None = 120,
        auto_reload: bool = False,
        *,
        executor: ExecutorName | None = None,
        output: str | Callable[[Any], Any] | None = None,
        seed: int | None = None,
        in_order: bool = True,
        worker_init_fn: Callable[[int], object] | None = None,
        start_method: str | None = None,
        max_retries: int = 1,
        memory_limit: int | str | None = None,
    ) -> None:
        check_dataset(dataset, sized=sampler is None and batch_sampler is None)
        check_flags(shuffle=shuffle, in_order=in_order, auto_reload=auto_reload)
        check_functions(batchify_fn=batchify_fn, worker_init_fn=worker_init_fn)
        check_pins(pin_memory, pin_device_id, output)
        num_workers = check_int("num_workers", num_workers)
        max_retries = check_int("max_retries", max_retries)
        prefetch = None if prefetch is None else check_int("prefetch", prefetch)
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise bad_argument("timeout", timeout, "give seconds > 0, or None to wait for ever")
        self._executor_name = choose_executor(executor, num_workers, thread_pool)
        self._start_method = choose_start_method(start_method, self._executor_name)
        self._memory_limit = parse_bytes(memory_limit)
        self._seed = draw_seed() if seed is None else check_int("seed", seed, None)
        self._batch_sampler = choose_batch_sampler(
            dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, self._seed
        )
        self._job = Job(dataset, batchify_fn or default_batchify, worker_init_fn, num_workers, self._seed)
        self._window_size = max(1, 2 * num_workers if prefetch is None else prefetch) if num_workers else 1
        self._finish: Finish = choose_finish(output, pin_memory, pin_device_id)
        self._in_order, self._max_retries = bool(in_order), max_retries
        self._timeout = timeout
        self._auto_reload = bool(auto_reload)
        self._epoch = 0
        self._closed = False
        self._begun: LoaderIterator | None = None  # auto_reload: the next epoch, its window filled already
        self._lock = threading.RLock()
        self._start()
        if auto_reload:
            self._begun = self._begin()

    def __iter__(self) -> LoaderIterator:
        """The next epoch. Iterators are independent: several may be alive, in several threads."""
        with self._lock:
            iterator, self._begun = self._begun, None
            if iterator is None or os.getpid() != self._pid:
                iterator = self._begin()
            iterator._loader = self
            return iterator

    def __len__(self) -> int:
        """Number of batches that the next epoch will give."""
        return len(self._batch_sampler)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, in order and augmentation; a sampler that has `set_epoch` is told."""
        epoch = check_int("epoch", epoch)
        with self._lock:
            self._begun = None
            self._epoch = epoch
            for sampler in (self._batch_sampler, getattr(self._batch_sampler, "sampler", None)):
                if sampler is not None and hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)

    def close(self) -> None:
        """Ends the workers and frees the shared memory; a second call does nothing.

        Batches that were delivered stay valid. `with DataLoader(...) as loader` closes at the end of the block; a
        loader that is deleted, or still open when the program ends, is closed too.
        """
        self._closed = True
        self._begun = None
        self._finalizer()

    def __repr__(self) -> str:
        job = self._job
        return f"<DataLoader of {type(job.dataset).__name__}, {self._executor_name}, {job.num_workers} workers>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DataLoader cannot be pickled: make it in the process that uses it")

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = _make_executor(
            self._executor_name, self._job, self._start_method, self._window_size, self._max_retries, self._memory_limit
        )
        # Before the Pool's own finalizer (15), which would terminate workers with work in flight.
        self._finalizer = Finalize(self, self._executor.close, exitpriority=20)

    def _begin(self) -> LoaderIterator:
        if self._closed:
            raise LoaderClosed("this DataLoader is closed; make a new one, or iterate inside its `with` block")
        if os.getpid() != self._pid:  # a forked child has no share in the parent's workers
            self._start()
        epoch, self._epoch = self._epoch, self._epoch + 1
        window: Window[Outcome] = Window(self._window_size, self._in_order)
        batches = iterate(self._batch_sampler)
        return LoaderIterator(self._executor, batches, window, epoch, self._seed, self._timeout, self._finish)

    def _epoch_is_over(self) -> None:
        if self._auto_reload and not self._closed:
            with self._lock:
                if self._begun is None:
                    self._begun = self._begin()


class LoaderIterator(Iterator[Any]):
    """One epoch of a loader. A class, not a generator: after a batch that raised, the next one still comes."""

    def __init__(
        self,
        executor: Executor,
        batches: Iterator[list[Any]],
        window: Window[Outcome],
        epoch: int,
        seed: int,
        timeout: float | None,
        finish: Finish,
    ) -> None:
        self._executor, self._batches, self._window = executor, batches, window
        self._epoch, self._seed, self._timeout = epoch, seed, timeout
        self._finish = finish
        self._pid = os.getpid()
        self._loader: DataLoader | None = None  # kept alive by the iteration
        self._tasks: dict[int, Task] = {}
        self._inbox = Inbox()
        self._drawn = False  # the sampler has given all it has
        self._sampler_error: Exception | None = None
        self._lock = threading.RLock()
        self._fill()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        """The next batch.

        Raises:
            BatchTimeout: it took longer than `timeout`.
            WorkerDied: it killed its workers.
            Exception: whatever dataset or batchify raised, with a note that says where.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("this iterator belongs to the parent process; call iter(loader) in the forked child")
        with self._lock:
            if self._window.empty:
                self._end()
                error, self._sampler_error = self._sampler_error, None
                raise error or StopIteration
            while not self._window.ready:
                self._wait()
            outcome = self._window.take()
            del self._tasks[outcome.task.batch]
            self._fill()  # first, so that a worker is busy while this thread rebuilds
            try:
                batch = outcome.take()
            finally:
                if self._window.empty:  # not before: it may let go of the loader, which closes it
                    self._end()
            return batch if self._finish is None else self._finish(batch)

    def close(self) -> None:
        """Breaks the epoch off: what is in flight is dropped. Also done when the iterator is deleted."""
        self._batches, self._drawn, self._loader = iter(()), True, None
        self._inbox.withdraw()
        for outcome in self._window.empty_out():
            outcome.discard()

    def __del__(self) -> None:
        if hasattr(self, "_inbox"):
            self.close()

    def _fill(self) -> None:
        """Draws from the sampler until the window is full; an error there is raised after the batches before it."""
        while self._window.has_room and not self._drawn:
            try:
                indices = as_list(next(self._batches))
            except StopIteration:
                self._drawn = True
                return
            except Exception as error:
                self._drawn, self._sampler_error = True, error
                self._batches = iter(())  # a pass that failed carries nothing over, as one that is broken off
                return
            number = self._window.admit()
            task = Task(self._epoch, number, batch_seed(self._seed, self._epoch, number), indices)
            self._tasks[number] = task
            self._executor.submit(task, self._inbox)

    def _wait(self) -> None:
        """Waits until one more batch has come."""
        try:
            outcome = self._executor.wait(self._inbox, self._timeout)
        except WorkerStartError:
            if self._loader is not None:
                self._loader.close()
            raise
        if outcome is None:
            number = self._window.head
            task = self._tasks.pop(number)
            self._window.give_up(number)
            self._fill()
            raise self._executor.overdue(task, self._timeout or 0)
        self._window.land(outcome.task.batch, outcome)

    def _end(self) -> None:
        """The last batch has been delivered."""
        if isinstance(self._batches, BatchPass):
            self._batches.commit()
        self._batches = iter(())
        if self._loader is not None:
            self._loader._epoch_is_over()
            self._loader = None


def _make_executor(
    name: str, job: Job, start_method: str, window: int, max_retries: int, memory_limit: int | None
) -> Executor:
    if name == "serial":
        return SerialExecutor(job)
    if name == "thread":
        return ThreadExecutor(job)
    return ProcessExecutor(job, start_method, window, max_retries, memory_limit)
