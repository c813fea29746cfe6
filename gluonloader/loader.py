"""`DataLoader`: its arguments become the parts that do the work.

    source of tasks     loading/sources.py    a batch sampler's indices, or the shards of an iterable dataset
    workers             loading/workers.py    which executor makes the batches: the caller, threads or processes
    delivery            loading/epoch.py      in which order, how late, as which framework's arrays
    epochs              loading/epochs.py     starts an epoch with these three; saves and loads positions

Iterating over a loader gives a `LoaderIterator` (iterator.py) over one epoch (loading/epoch.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

from .batchify import default_batchify
from .checks import ExecutorName, LastBatch, check_flags, check_functions, check_int, check_timeout
from .errors import explain_torch_arguments
from .iterator import LoaderIterator
from .loading.arguments import (
    TORCH_WORDS,
    Batching,
    check_pins,
    choose_options,
    choose_output,
    choose_source,
)
from .loading.epoch import Delivery
from .loading.epochs import Epochs
from .loading.plan import only_sample
from .loading.stats import LoaderStats
from .loading.workers import Workers
from .randomness import draw_seed
from .work.info import LoaderInfo, WorkerInfo
from .work.task import Job


class DataLoader:
    """Loads batches of a dataset in worker processes or threads, before the program asks for them.

    The first fourteen arguments are those of `mxnet.gluon.data.DataLoader`, in its order. Workers start once, in the
    constructor, and serve every epoch until `close()`.

    Args:
        dataset: any object with `__len__` and `__getitem__`, such as a list. Or an object with `__iter__` alone, which
            is read in shards: see `num_shards`, and `docs/iterable.md`.
        batch_size: samples in a batch. None with an iterable dataset that yields whole batches.
        shuffle: a new random order in each epoch, a function of `seed` and the epoch's number.
        sampler: instead of `shuffle`: any sized iterable of indices.
        last_batch: 'keep' (default), 'discard', or 'rollover' into the next epoch.
        batch_sampler: instead of the four above: any iterable of lists of indices.
        batchify_fn: makes a batch from the list of its samples; default `default_batchify`.
        num_workers: number of workers. 0 makes each batch in the calling thread when it is asked for. "auto" is one for
            each core that this process may use, and `executor="auto"` unless another executor is given.
        pin_memory: put arrays of torch and MXNet into page-locked memory, for fast copies to a device. Without a
            device they stay in ordinary memory, with a warning.
        pin_device_id: the device that MXNet pins memory for.
        prefetch: most batches in flight, over all workers: drawn from the sampler and not delivered. By default
            `2 * num_workers`; in processes `4 * num_workers` while no batch has taken more than 1 MB.
        thread_pool: with workers: use threads, as `executor="thread"` does.
        timeout: seconds after which a batch that the program waits for is an error; None waits for ever. It has no
            effect without workers.
        auto_reload: start the next epoch as soon as this one has delivered its last batch.
        executor: "serial", "thread" or "process"; the default follows from `num_workers` and `thread_pool`. "auto"
            chooses: the calling thread for small rows in memory, threads if the dataset, its transforms and
            `batchify_fn` are declared to release the GIL (`gluonloader.gil_free`), processes for everything else. From
            the next epoch on it takes the calling thread if batches prove cheaper to make than to hand over.
        output: what the arrays of a batch become: "numpy", "mxnet", "torch", "jax", or a function of one array. By
            default they stay what they are: a batch of torch tensors is a torch tensor. Memory is shared, not
            copied, if the framework allows it. Arrays of texts, times and objects stay NumPy arrays.
        seed: of order and augmentation; None draws one from NumPy's global generator.
        in_order: deliver in the sampler's order; False delivers each batch as soon as it is made.
        worker_init_fn: called with a `WorkerInfo` in each worker before any sample, also in a worker that replaces a
            dead one. The `WorkerInfo` is the worker's number, with attributes that say more.
        worker_payload: called as `worker_payload(loader_info, worker_id)` in this process, once for each worker; the
            result is the `payload` of that worker's `WorkerInfo`.
        start_method: "fork", "forkserver" or "spawn", for processes. The default is the one that
            `multiprocessing.set_start_method` set, otherwise fork on Linux and the platform's own elsewhere. Fork
            starts in milliseconds, takes any dataset and needs no `__main__` guard. Use "forkserver" if threads hold
            locks or compute while workers start; see `docs/workers.md`.
        max_retries: how often a batch that killed its worker is tried again before it is an error.
        memory_limit: most shared memory for batches, in bytes or as "256MB"; None for no limit.
        max_per_worker: most batches that wait at one worker; the others go to whichever worker is free next. By
            default all are given out at once, and idle workers take over what waits behind a slow batch.
        num_shards: number of shards that an iterable dataset is read in, each by one worker; default one per worker.
            The order of the samples depends on it, and not on the number of workers.
        shuffle_buffer: with `shuffle` and an iterable dataset: how many samples of each shard are held and shuffled
            among each other; default 1000.

    Attributes:
        epochs: starts epochs, and saves and loads positions; for subclasses.

    Raises:
        ValueError: an argument is wrong; the text names it, its value and what to give.
        MissingExtraError: the framework of `output` is not installed.
        TransportError: `start_method` has to pickle the dataset, and that fails.

    >>> loader = DataLoader([(i, -i) for i in range(5)], batch_size=2)
    >>> for first, second in loader:
    ...     print(first, second)
    [0 1] [ 0 -1]
    [2 3] [-2 -3]
    [4] [-4]
    """

    @explain_torch_arguments(**TORCH_WORDS)
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[Sequence[Any]], Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
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
        worker_init_fn: Callable[[WorkerInfo], object] | Callable[[int], object] | None = None,
        worker_payload: Callable[[LoaderInfo, int], Any] | None = None,
        start_method: str | None = None,
        max_retries: int = 1,
        memory_limit: int | str | None = None,
        max_per_worker: int | None = None,
        num_shards: int | None = None,
        shuffle_buffer: int | None = None,
    ) -> None:
        check_flags(shuffle=shuffle, in_order=in_order, auto_reload=auto_reload)
        check_functions(batchify_fn=batchify_fn, worker_init_fn=worker_init_fn, worker_payload=worker_payload)
        check_pins(pin_memory, pin_device_id, output)
        check_timeout(timeout)
        batching = Batching(batch_size, shuffle, sampler, last_batch, batch_sampler, num_shards, shuffle_buffer)
        options = choose_options(
            executor, num_workers, thread_pool, prefetch, start_method, max_retries, memory_limit, max_per_worker
        )
        used_seed = draw_seed() if seed is None else check_int("seed", seed, None)
        source = choose_source(dataset, batching, used_seed, seed is not None, options.num_workers)
        if batchify_fn is None:
            batchify_fn = only_sample if source.sampler is None and batch_size is None else default_batchify
        job = Job(dataset, batchify_fn, worker_init_fn, options.num_workers, used_seed, iterable=source.sampler is None)
        workers = Workers(job, options, batch_size, worker_payload)
        workers.job = workers.job_with(used_seed)
        delivery = Delivery(bool(in_order), timeout, choose_output(output, pin_memory, pin_device_id))
        self.epochs = Epochs(source, workers, delivery, seed is not None, bool(auto_reload))
        workers.start(epoch=0)
        self.epochs.start_ahead()

    def __iter__(self) -> LoaderIterator:
        """The next epoch. Iterators are independent: several may be alive, in several threads."""
        return LoaderIterator(self.epochs, self.epochs.next())

    def __len__(self) -> int:
        """Number of batches of the next epoch; a resumed epoch counts whole. TypeError if the dataset has no length."""
        return len(self.epochs)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the number of the next epoch, for its order and augmentation; samplers with `set_epoch` get it.

        If a position was just loaded and `epoch` is its number, the loaded position stays.
        """
        self.epochs.set_number(check_int("epoch", epoch))

    def stats(self) -> LoaderStats:
        """Which executor makes the batches, why, and how long the program waited for them."""
        return self.epochs.workers.stats()

    def close(self) -> None:
        """Ends the workers and frees the shared memory; a second call does nothing.

        Batches that were delivered stay valid. `with DataLoader(...) as loader` closes at the end of the block. A
        loader that is deleted, or still open when the program ends, is closed as well.
        """
        self.epochs.close()

    def state_dict(self) -> dict[str, Any]:
        """The loader's position: after the last delivered batch of the epoch that was started last.

        Returns:
            A dict of a few hundred bytes of JSON, whatever the size of the dataset; see `docs/resume.md`.

        Raises:
            TypeError: the state of your own sampler or dataset is not JSON.
        """
        return self.epochs.state()

    def load_state_dict(self, state: Any) -> None:
        """Has the next iteration continue where `state` was saved, in this process or another.

        The number of workers, `prefetch`, executor and start method may differ; what the batches depend on may not.

        Args:
            state: what `state_dict()` returned, or its JSON text.

        Raises:
            ValueError: it does not fit this loader, or was changed; the text names the field. Nothing has changed.
        """
        with self.epochs.lock:
            self.epochs.load(state)
            self.epochs.start_ahead()

    def __repr__(self) -> str:
        job, options = self.epochs.workers.job, self.epochs.workers.options
        return f"<DataLoader of {type(job.dataset).__name__}, {options.executor}, {job.num_workers} workers>"

    def __copy__(self) -> DataLoader:
        """An independent loader at the same position; it starts workers when it is used."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, epochs=copy.copy(self.epochs))
        return new

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
