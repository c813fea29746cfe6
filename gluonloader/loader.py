"""`DataLoader`: builds the parts that do the work from its arguments.

    source of tasks     loading/index_source.py    the batches of a batch sampler; shard_source.py: shards
    workers             loading/workers.py    which executor makes the batches: serial, thread or process
    delivery            loading/epoch.py      in which order, with which timeout, as arrays of which framework
    epochs              loading/epochs.py     starts an epoch with these three parts; saves and loads positions

`iter(loader)` returns a `LoaderIterator` (iterator.py) over one epoch (loading/epoch.py).
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal

from .arguments.arguments import (
    MOVED,
    TORCH_WORDS,
    choose_delivery,
    choose_options,
    choose_reading,
    most_errors,
    warn_of_prefetch,
)
from .arguments.batching import Batching, check_dataset, choose_batches
from .batchify import default_batchify, only_sample
from .checks import ErrorAction, ExecutorName, LastBatch, check_attribute, check_flags, check_functions, check_int
from .describe import arguments, call, describe, short_repr
from .errors import explain_arguments
from .iterator import LoaderIterator
from .loading.epochs import Epochs
from .loading.workers import Workers, payloads_for
from .options import OnError, Processes, Ray, Seed, Threads, as_on_error, as_seed
from .randomness import checked_seed
from .ranks import Ranks
from .tree import Batch
from .work.info import LoaderInfo, WorkerInfo
from .work.task import Job

if TYPE_CHECKING:
    from .loading.index_source import IndexSource
    from .loading.shard_source import ShardSource
    from .statistics.stats import LoaderStats
    from .statistics.trace import Trace


class DataLoader(Generic[Batch]):
    """Loads batches of a dataset ahead of time, in worker processes or threads.

    The first fourteen arguments are those of `mxnet.gluon.data.DataLoader`, in the same order. Workers start once, in
    the constructor, and serve every epoch until `close()`.

    Args:
        dataset: any object with `__len__` and `__getitem__`, such as a list; or an object with `__iter__` only, which
            is read in shards: see `IterableDataset` and `docs/streams.md`.
        batch_size: number of samples in a batch; None if an iterable dataset yields whole batches.
        shuffle: use a new random order in each epoch; the order depends only on `seed` and the number of the epoch.
        sampler: any iterable of indices with a length; replaces `shuffle`. Or a function `(epoch) -> indices`.
        last_batch: what to do with a last batch that is too short: 'keep' it (default), 'discard' it, or move its
            samples to the next epoch ('rollover').
        batch_sampler: any iterable of lists of indices, or a function `(epoch) -> lists`; replaces `batch_size`,
            `shuffle`, `sampler` and `last_batch`.
        batchify_fn: a function that makes a batch from the list of its samples; default `default_batchify`.
        num_workers: number of workers. 0 means that each call of `next` makes its batch in the calling thread. "auto"
            starts one worker for each core that this process may use, and sets `executor="auto"` unless you pass
            `executor`.
        pin_memory: put arrays of torch and MXNet into page-locked memory, for fast copies to a device. Without a device
            there is a warning, and the arrays stay in ordinary memory.
        pin_device_id: the number of the device for which MXNet pins memory.
        prefetch: the maximum number of batches in flight (drawn from the sampler and not delivered), over all workers.
            The default is `2 * num_workers`; with worker processes it is `4 * num_workers` until a batch is larger than
            1 MB. If bulk reads run side by side (`concurrency`), each worker needs `concurrency - 1` more batches.
        thread_pool: use threads as workers, like `executor="thread"`.
        timeout: seconds after which waiting for a batch raises an error; None waits without limit. Without workers,
            `timeout` is ignored. With worker processes and `on_error`, it is the limit for each sample.
        auto_reload: start the next epoch as soon as the last batch of an epoch was delivered.
        executor: "serial", "thread", "process" or "ray"; the default depends on `num_workers` and `thread_pool`. "ray"
            makes the batches in Ray actors, perhaps on other machines; see `docs/processes.md`. `Processes`, `Threads`
            and `Ray` of `gluonloader.options` have options: `Processes(max_retries=3)`. "auto" chooses the
            calling thread for small samples in memory; threads if the dataset, its transforms and `batchify_fn` are
            declared to release the GIL (`gluonloader.gil_free`) or, on a Python without a GIL, to be safe in threads
            (`gluonloader.thread_safe`); and processes for everything else.
        output: the framework to which the arrays of a batch are converted: "numpy", "mxnet", "torch" or "jax"; or a
            function that converts one array. By default, arrays are not converted: if the samples contain torch
            tensors, the batches contain torch tensors, too. Memory is shared, not copied, if the framework allows that.
            Arrays of texts, times and objects stay NumPy arrays.
        seed: the seed of the order and of random augmentation; None draws a seed from NumPy's global generator. A
            `gluonloader.options.Seed` also says whether random generators of the dataset are seeded.
        in_order: deliver batches in the order of the sampler; False delivers each batch as soon as it is made.
        worker_init_fn: a function that each worker calls before it reads a sample, also a worker that replaces a dead
            worker. Its argument is a `WorkerInfo`: the number of the worker, with more attributes.
        worker_payload: a function that is called in this process, once for each worker: `worker_payload(loader_info,
            worker_id)`. The result is the `payload` of that worker's `WorkerInfo`.
        start_method: how worker processes start: "fork", "forkserver" or "spawn". The default is "fork" on Linux and
            Python's default elsewhere, unless `multiprocessing.set_start_method` has set another than Python's default.
            With "fork", workers start in milliseconds, the dataset need not be picklable, and no `__main__` guard is
            needed. Use "forkserver" if threads compute or hold locks while workers start; see `docs/workers.md`.
        memory_limit: the maximum shared memory for batches, in bytes or as text ("256MB"); None for no limit.
        ranks: if several processes read the dataset, the rank of this process and the number of processes: `(index,
            count)`; "env", "torch" or "mpi" to look them up; or a `Ranks`. Each process reads its own part of the
            order that all share; of an iterable dataset, its own shards. `Ranks` says how all processes get the same
            number of batches, and lets them share workers. All processes need the same `seed`. See `docs/processes.md`.
        concurrency: how many samples of a batch each worker reads at the same time, for samples that wait for a disk or
            a network. If the dataset has `__getitems__`, it is the number of bulk reads that each worker runs at the
            same time. The batches are those of `concurrency=1`. See `docs/speed.md`.
        on_error: what to do if a sample raises an error: "raise" it (default), "skip" the sample, "replace" it by
            another sample, or call a function `(error, sample) -> value` that returns a sample or `gluonloader.SKIP`.
            If more than 1 % of the dataset do, the epoch ends with `TooManyErrors`; `gluonloader.options.OnError` sets
            another limit. See `docs/errors.md`.

    Attributes:
        epochs: the object that starts epochs, and saves and loads positions; for subclasses.

    Raises:
        ValueError: an argument is wrong; the text names the argument, its value and what to pass instead.
        MissingExtraError: the framework of `output`, or Ray, is not installed.
        TransportError: `start_method` or `executor="ray"` requires pickling the dataset, and that fails.

    >>> loader = DataLoader([(i, -i) for i in range(5)], batch_size=2)
    >>> for first, second in loader:
    ...     print(first, second)
    [0 1] [ 0 -1]
    [2 3] [-2 -3]
    [4] [-4]
    """

    @explain_arguments(**TORCH_WORDS, **MOVED)
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[Any], Batch] | None = None,
        num_workers: int | Literal["auto"] = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float | None = 120,
        auto_reload: bool = False,
        *,
        executor: ExecutorName | Processes | Threads | Ray | None = None,
        output: str | Callable[[Any], Any] | None = None,
        seed: int | Seed | None = None,
        in_order: bool = True,
        worker_init_fn: Callable[[WorkerInfo], object] | Callable[[int], object] | None = None,
        worker_payload: Callable[[LoaderInfo, int], Any] | None = None,
        start_method: str | None = None,
        memory_limit: int | str | None = None,
        ranks: Ranks | tuple[int, int] | Literal["env", "torch", "mpi"] | None = None,
        concurrency: int = 1,
        on_error: ErrorAction | OnError = "raise",
    ) -> None:
        check_flags(shuffle=shuffle, auto_reload=auto_reload, pin_memory=pin_memory)
        check_functions(batchify_fn=batchify_fn, worker_init_fn=worker_init_fn, worker_payload=worker_payload)
        batching = Batching(batch_size, shuffle, sampler, last_batch, batch_sampler, ranks)
        self._batching, self._pin_memory, self._timeout = batching, bool(pin_memory), timeout  # to be read again
        options = choose_options(executor, num_workers, thread_pool, start_method, prefetch, memory_limit)
        seeds, policy, share = as_seed(seed), as_on_error(on_error), ranks.share if isinstance(ranks, Ranks) else None
        used_seed, is_seeded = checked_seed(seeds.value), seeds.value is not None
        if share is not None:
            from .arguments.sharing import share_workers, stand_in

            dataset = stand_in(dataset)
        iterable = check_dataset(dataset, sized=batching.is_made_here)
        if batchify_fn is None:
            batchify_fn = only_sample if iterable and batch_size is None else default_batchify
        reading = choose_reading(dataset, iterable, batching, concurrency, policy, seeds)
        payloads = partial(payloads_for, worker_payload, dataset, batch_size, options.num_workers)
        parts = dataset, batchify_fn, worker_init_fn, options.num_workers, used_seed
        job = Job(*parts, iterable, payloads=payloads(used_seed), reading=reading)
        if share is not None:  # a dataset that only the server has gets its length here
            options = share_workers(share, batching, options, is_seeded, job, timeout)
        source: IndexSource | ShardSource
        if iterable:
            from .arguments.shards import choose_shards

            source = choose_shards(dataset, batching, is_seeded, options.num_workers)
        else:
            source = choose_batches(dataset, batching, used_seed, is_seeded)
        warn_of_prefetch(options, dataset, batch_size, source)
        errors = most_errors(dataset, policy)
        delivery = choose_delivery(in_order, timeout, output, pin_memory, pin_device_id, errors)
        workers = Workers(job, options, payloads)
        self.epochs = Epochs(source, workers, delivery, is_seeded, bool(auto_reload))
        workers.start(epoch=0)
        self.epochs.start_ahead()

    def __iter__(self) -> LoaderIterator[Batch]:
        """Starts the next epoch. Iterators are independent: several threads may read several iterators at a time."""
        return LoaderIterator(self.epochs, self.epochs.next())

    def __len__(self) -> int:
        """Number of batches of the whole next epoch, even if it is resumed; TypeError if the dataset has no length."""
        return len(self.epochs)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, on which its order and augmentation depend.

        The number is also passed to the sampler's `set_epoch`. If a position was just loaded and `epoch` is the number
        of its epoch, the next iteration still resumes at that position.
        """
        self.epochs.set_number(check_int("epoch", epoch))

    def stats(self) -> LoaderStats:
        """Which executor makes the batches and why, how long the program and the workers waited, and what to change."""
        return self.epochs.workers.stats()

    def trace(self, path: str | os.PathLike[str], batches: int = 10_000) -> Trace:
        """Starts to record what the program and each worker do, for a trace viewer such as https://ui.perfetto.dev.

        Args:
            path: the JSON file to write, when the recording is stopped.
            batches: the recording ends after this many batches; each takes about 1 kB of the file.

        Returns:
            A `Trace`, to be used in a `with` block; or call its method `stop()`.

        Raises:
            OSError: the file cannot be written.

        >>> import tempfile
        >>> loader = DataLoader(range(10), batch_size=2)
        >>> with tempfile.NamedTemporaryFile() as file, loader.trace(file.name) as trace:
        ...     print(len(list(loader)))
        5
        """
        return self.epochs.workers.trace(path, check_int("batches", batches, 1))

    def close(self) -> None:
        """Ends the workers and frees the shared memory; a second call does nothing.

        Batches that were delivered stay valid. `with DataLoader(...) as loader` closes the loader at the end of the
        block. A loader is also closed when it is deleted and when the program ends.
        """
        self.epochs.close()

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader after the last delivered batch of the newest epoch.

        Returns:
            A dict that is a few hundred bytes as JSON, for a dataset of any size; see `docs/exact.md`.

        Raises:
            TypeError: the state of your own sampler or dataset contains something that JSON does not have.
        """
        return self.epochs.state()

    def load_state_dict(self, state: Any, new_batch_size: bool = False) -> None:
        """Makes the next iteration resume at the position `state`, which this or another process has saved.

        The loader may have a different number of workers, `prefetch`, executor and start method than the loader that
        saved `state`. Everything that decides which samples a batch contains must be the same. The number of ranks may
        differ: see `merge_states`. Then `batch_size` may differ if all ranks together have batches of the same size.

        Args:
            state: what `state_dict()` returned, or the same as JSON text.
            new_batch_size: True also allows any other `batch_size`. The epoch continues at the same sample, but random
                numbers in samples differ, since their seeds depend on the number of the batch; see `docs/exact.md`.

        Raises:
            ValueError: the state does not fit this loader, or was edited; the text names the field. Nothing has
                changed.
        """
        check_flags(new_batch_size=new_batch_size)
        with self.epochs.lock:
            self.epochs.load(state, bool(new_batch_size))
            self.epochs.start_ahead()

    # -- any batch again -----------------------------------------------------------------------------------------------

    def indices(self, epoch: int, batch: int) -> list[Any]:
        """The indices of the samples in a batch, in their order; see `docs/exact.md`.

        Samples that `on_error` skips or replaces are included. Batches are numbered from 0 in each epoch, in the order
        of the sampler. The loader is assumed to read each epoch from epoch 0 on to its end. This call changes neither
        the loader nor its samplers and iterators. With the samplers of gluonloader, it draws no other batch.

        Raises:
            ValueError: the epoch has no such batch, or its order is not known; the text says why and what to do.
            TypeError: the dataset is iterable, so its samples have no indices.

        >>> DataLoader(range(10), batch_size=4, shuffle=True, seed=1).indices(epoch=3, batch=2)
        [3, 2]
        """
        from .loading import replay

        return replay.indices(self.epochs, epoch, batch)

    def upcoming(self, count: int, all_ranks: bool = False) -> list[Any]:
        """The indices of the samples that come next, in their order, also over the end of the epoch.

        They follow the last batch that the newest iterator has delivered, so those in flight are the first ones. Use
        it to fetch files before workers read them. This call changes neither the loader nor its samplers.

        Args:
            count: how many indices, at least 1.
            all_ranks: with `ranks`, the indices of all ranks: the next batch of rank 0, that of rank 1, and so on.

        Returns:
            `count` indices, or whatever else the sampler yields, such as rows; fewer only if epochs have no batches.

        Raises:
            ValueError: the dataset is iterable, or the sampler is your own, so that the order is not known ahead.

        >>> loader = DataLoader(range(5), batch_size=2, shuffle=True, seed=1)
        >>> iterator = iter(loader); first = next(iterator)
        >>> loader.upcoming(5)
        [1, 2, 0, 0, 1]
        """
        from .loading import replay

        return replay.upcoming(self.epochs, count, all_ranks)

    def replay(self, epoch: int, batch: int, read: bool = False) -> Batch:
        """Makes a batch again, with the same random numbers, as this loader delivers or has delivered it.

        This call makes the batch in the calling thread, so you can step through the dataset with a debugger. The first
        call also calls `worker_init_fn`. The loader, its workers, its iterators and the global random generators do not
        change. See `docs/exact.md`.

        Args:
            epoch, batch: as for `indices`; for an iterable dataset, `batch` is the `number` of `iterator.last`.
            read: for an iterable dataset, pass True to allow that all samples before the batch in its shard are read,
                which can take as long as the epoch. With False, this call raises a ValueError instead.

        Raises:
            ValueError: as for `indices`; or `read` is needed; or `on_error` skips all samples of the batch.
            Exception: any exception of the dataset or batchify_fn, as `next` raises it.
        """
        from .loading import replay

        batch_again: Batch = replay.replay(self.epochs, epoch, batch, read)
        return batch_again

    def seek(self, epoch: int, batch: int) -> None:
        """Makes the next iteration start at a batch, as if the position before it had been saved and loaded.

        For `max_errors`, only samples from this batch on are counted.

        Args:
            epoch, batch: as for `replay`. For an iterable dataset, this call reads the samples before the batch.

        Raises:
            ValueError: as for `indices`. Nothing has changed.
        """
        from .loading import replay

        replay.seek(self.epochs, epoch, batch)

    # -- the arguments, read-only --------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Any:
        """The dataset."""
        return self.epochs.workers.job.dataset

    @property
    def batch_size(self) -> int | None:
        """The number of samples in a batch; None if `batch_sampler` or an iterable dataset decides it."""
        return self._batching.batch_size

    @property
    def batch_sampler(self) -> Any:
        """What yields the indices of each batch: your own or one that the loader made; None for an iterable dataset."""
        return self.epochs.source.sampler

    @property
    def sampler(self) -> Any:
        """What yields the indices: your own sampler, or one that the loader made. With your own batch sampler it is
        the attribute `sampler` of that, or None. It is also None for an iterable dataset.
        """
        return getattr(self.batch_sampler, "sampler", None)

    @property
    def batchify_fn(self) -> Callable[[Any], Batch]:
        """The function that makes a batch from its samples."""
        return self.epochs.workers.job.batchify_fn

    @property
    def collate_fn(self) -> Callable[[Any], Batch]:
        """Torch's name of `batchify_fn`."""
        return self.batchify_fn

    @property
    def num_workers(self) -> int:
        """The number of workers, also if "auto" chose it; see `stats()` for the number that "auto" uses now."""
        return self.epochs.workers.options.num_workers

    @property
    def drop_last(self) -> bool:
        """Whether the loader drops a last batch that is too short: `last_batch="discard"`."""
        return self._batching.last_batch == "discard"

    @property
    def pin_memory(self) -> bool:
        """Whether arrays of torch and MXNet are put into page-locked memory, if there is a device."""
        return self._pin_memory

    @property
    def persistent_workers(self) -> bool:
        """Whether there are workers, since workers always stay until `close()`."""
        return self.num_workers > 0

    @property
    def timeout(self) -> float | None:
        """The number of seconds after which waiting for a batch raises an error; None for no limit."""
        return self._timeout

    @property
    def prefetch(self) -> int:
        """The maximum number of batches in flight now; 0 if no worker makes batches ahead."""
        return self.epochs.workers.prefetch

    def __setattr__(self, name: str, value: Any) -> None:
        known = getattr(type(self), name, None)
        if isinstance(known, property) and known.fset is None:
            text = f"{name} of a DataLoader cannot be changed; make a new DataLoader with another {name}"
            raise AttributeError(f"{text}, or choose another name for an attribute of your own subclass")
        if not (name.startswith("_") or hasattr(type(self), name) or name in self.__dict__):
            caller = sys._getframe(1)  # a method of a subclass may set any attribute
            if caller.f_locals.get((*caller.f_code.co_varnames, "")[0]) is not self:
                check_attribute(DataLoader.__init__, TORCH_WORDS, name, value)
        super().__setattr__(name, value)

    # -- special methods -----------------------------------------------------------------------------------------------

    @short_repr
    def __repr__(self) -> str:
        workers, batching = self.epochs.workers, self._batching
        dataset, batchify_fn = workers.job.dataset, workers.job.batchify_fn
        passed = {field.name: getattr(batching, field.name) for field in fields(batching)}
        passed["shuffle"] = batching.shuffle or None
        is_default = isinstance(batchify_fn, FunctionType) and batchify_fn.__module__.startswith("gluonloader.")
        shown = arguments(**passed, batchify_fn=None if is_default else batchify_fn)
        return call(self, describe(dataset), *shown, *workers.describe(), *["closed"] * workers.closed)

    def __copy__(self) -> DataLoader[Batch]:
        """An independent loader at the same position; it starts its own workers at its first use."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, epochs=copy.copy(self.epochs))
        return new

    def __enter__(self) -> DataLoader[Batch]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.epochs.workers.block_ended = True
        self.close()
