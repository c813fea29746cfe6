"""`DataLoader`: the one file that knows every part.

plan: the batch sampler's indices, or the shards of an iterable dataset
|  Task(epoch, batch, seed, indices or chunk)
v
window (at most `prefetch` batches in flight)
v
executor: serial | thread | process
|  Outcome, through the iterator's inbox
v
window --in order, or as completed--> plan (what is delivered) --> finish (arrays of `output`, pinned) --> user

The loop itself is the iterator's, in iterator.py.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.util import Finalize
from typing import Any, Literal

from .batchify import default_batchify
from .checks import ExecutorName, LastBatch, check_flags, check_functions, check_int, check_timeout, parse_bytes
from .dataset.iterable import check_iterable, is_iterable
from .errors import LoaderClosed, explain_torch_arguments
from .executors.base import Executor
from .iterator import LoaderIterator
from .loading.arguments import (
    TORCH_WORDS,
    check_dataset,
    check_not_for_iterables,
    check_only_for_iterables,
    check_pins,
    choose_batch_sampler,
    choose_executor,
    choose_finish,
    choose_last_batch,
    choose_shuffle_buffer,
    choose_start_method,
    choose_workers,
)
from .loading.choice import Choice, Means
from .loading.plan import IndexPlan, Leftover, Loaded, Plan, ShardPlan, Shards, Start, only_sample
from .loading.stats import LoaderStats, Tally
from .randomness import draw_seed
from .sampler import knows_epoch
from .state import add_checksum, check_same, field, has_state, int_field, parse_state, to_json, verify_checksum
from .work.info import LoaderInfo, WorkerInfo
from .work.task import Job

__all__ = ["DataLoader", "LoaderIterator"]


class DataLoader:
    """Loads batches of a dataset, ahead of their use, in worker processes or threads.

    The first fourteen arguments are those of `mxnet.gluon.data.DataLoader`, in its order. Workers start here, once,
    and serve every epoch until `close()`.

    Args:
        dataset: any object with `__len__` and `__getitem__`; a list is one. Or one with `__iter__` alone, which is
            read in shards: see `num_shards`, and `docs/iterable.md`.
        batch_size: samples in a batch. None with an iterable dataset: it gives whole batches.
        shuffle: a new random order each epoch, a function of `seed` and the epoch's number.
        sampler: instead of `shuffle`: any sized iterable of indices.
        last_batch: 'keep' (default), 'discard', or 'rollover' into the next epoch.
        batch_sampler: instead of the four above: any iterable of lists of indices.
        batchify_fn: makes a batch from the list of its samples; default `default_batchify`.
        num_workers: number of workers; 0 makes each batch in the caller when it is asked for; "auto" is one for each
            core that this process may use, fewer while it never waits, and `executor="auto"` if no other is given.
        pin_memory: put arrays of torch and MXNet into page-locked memory, for fast copies to a device; without a
            device they stay where they are, with a warning.
        pin_device_id: the device that MXNet pins memory for.
        prefetch: most batches in flight, over all workers, from drawing their indices to delivery. By default
            `2 * num_workers`; in processes twice as many, but at most 16 more, until a batch takes more than 1 MB, and
            if there is no `memory_limit`; and one less where batches take 16 MB or more.
        thread_pool: with workers: use threads, as `executor="thread"`.
        timeout: seconds after which a batch that is waited for is an error; None waits for ever. Not with 0 workers.
        auto_reload: begin the next epoch's window as soon as this one has delivered its last batch.
        executor: "serial", "thread" or "process"; by default from `num_workers` and `thread_pool`. "auto" takes threads
            where dataset, transforms and `batchify_fn` say that they leave the GIL (`gluonloader.gil_free`), processes
            for all else, and the caller once batches prove to be cheaper to make than to hand over.
        output: what the arrays of a batch become: "numpy", "mxnet", "torch", "jax", or a function of one array. By
            default they stay what they are: a batch of torch tensors is a torch tensor. Memory is shared, not
            copied, where the framework can; arrays of texts, times and objects stay NumPy's.
        seed: of order and augmentation; None draws one from NumPy's global generator.
        in_order: deliver in the sampler's order; False delivers each batch as soon as it is made.
        worker_init_fn: called once in each worker, before any sample, and in a worker that replaces a dead one, with
            its `WorkerInfo`, which is its number and knows more.
        worker_payload: called here, `worker_payload(loader_info, worker_id)`, once for each worker; what it returns
            is the `payload` of that worker's `WorkerInfo`.
        start_method: "fork", "forkserver" or "spawn", for processes. The default is what
            `multiprocessing.set_start_method` chose, else fork on Linux, the platform's own elsewhere: fork starts
            in milliseconds, takes any dataset and needs no `__main__` guard. Where threads hold locks or compute
            while workers start, use "forkserver"; see `docs/workers.md`.
        max_retries: how often a batch that killed its worker is tried again before it is an error.
        memory_limit: most shared memory for batches, in bytes or as "256MB"; None for no limit.
        max_per_worker: most batches that wait at one worker; the others go to whichever worker is free next. By
            default all are spread at once, and idle workers take over what waits behind a slow batch.
        num_shards: parts that an iterable dataset is read in, each by one worker; default: one for each worker. The
            order of the samples depends on it, and not on the number of workers.
        shuffle_buffer: with `shuffle`, how many samples of an iterable dataset, in each shard, are held to be
            shuffled among each other; default 1000.

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

    _begun: LoaderIterator | None  # auto_reload: the next epoch, its window filled already

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
        iterable = is_iterable(dataset)
        if not iterable:
            check_dataset(dataset, sized=sampler is None and batch_sampler is None)
        check_flags(shuffle=shuffle, in_order=in_order, auto_reload=auto_reload)
        check_functions(batchify_fn=batchify_fn, worker_init_fn=worker_init_fn, worker_payload=worker_payload)
        check_pins(pin_memory, pin_device_id, output)
        workers = choose_workers(num_workers, executor)
        num_workers = workers.number
        prefetch = None if prefetch is None else check_int("prefetch", prefetch)
        check_timeout(timeout)
        name = choose_executor(executor, workers, thread_pool)
        self._means = Means(
            name,
            max(1, 2 * num_workers if prefetch is None else prefetch) if num_workers else 1,
            prefetch is None and memory_limit is None,
            choose_start_method(start_method, name),
            check_int("max_retries", max_retries),
            parse_bytes(memory_limit),
            None if max_per_worker is None else check_int("max_per_worker", max_per_worker, 1),
            workers.automatic,
        )
        self._seed_given = seed is not None
        self._seed = draw_seed() if seed is None else check_int("seed", seed, None)
        self._batch_sampler: Any = None
        self._shards: Shards | None = None
        if iterable:
            check_iterable(dataset)
            check_not_for_iterables(dataset, sampler=sampler, batch_sampler=batch_sampler)
            size = 1 if batch_size is None else check_int("batch_size", batch_size, 1)
            number = max(1, num_workers) if num_shards is None else check_int("num_shards", num_shards, 1)
            buffer = choose_shuffle_buffer(shuffle, shuffle_buffer)
            self._shards = Shards(number, size, choose_last_batch(last_batch), buffer, num_workers)
            batchify_fn = only_sample if batch_size is None and batchify_fn is None else batchify_fn
        else:
            check_only_for_iterables(num_shards=num_shards, shuffle_buffer=shuffle_buffer)
            self._batch_sampler = choose_batch_sampler(
                dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, self._seed, self._seed_given
            )
        self._batch_size, self._worker_payload = batch_size, worker_payload
        batchify_fn = batchify_fn or default_batchify
        self._job = Job(dataset, batchify_fn, worker_init_fn, num_workers, self._seed, iterable)
        self._job = self._job_with(self._seed)
        self._finish = choose_finish(output, pin_memory, pin_device_id)
        self._in_order, self._timeout = bool(in_order), timeout
        self._auto_reload = bool(auto_reload)
        self._epoch = 0
        self._carried: list[Leftover] = []
        self._closed = False
        self._become_whole()
        self._start()
        if auto_reload:
            self._begun = self._begin()

    def _become_whole(self) -> None:
        """What a loader has that was not told to it, and that cannot be pickled."""
        self._pid: int | None = None  # where its workers were started
        self._close_executor: Callable[[], object] = lambda: None
        self._iterations = count()
        self._plans: weakref.WeakSet[Plan] = weakref.WeakSet()  # that may still be in use
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._begun = None
        self._current: Plan | None = None  # of the iterator that was begun last
        self._loaded: Loaded | None = None  # where the next epoch begins
        self._loaded_epoch: int | None = None  # until that epoch is handed out
        self._lock = threading.RLock()
        self._tally = Tally()
        self._choice: Choice | None = None

    def __iter__(self) -> LoaderIterator:
        """The next epoch. Iterators are independent: several may be alive, in several threads."""
        with self._lock:
            iterator, self._begun = self._begun, None
            if iterator is not None and os.getpid() != self._pid:  # begun before a fork, by the parent's workers
                self._load(self._state_of(iterator._plan))
                iterator = None
            iterator, self._loaded_epoch = iterator or self._begin(), None
            iterator._loader, self._current = self, iterator._plan
            return iterator

    def __len__(self) -> int:
        """Number of batches of the next epoch, also where it is resumed; a TypeError if a dataset has no length."""
        if self._shards is None:
            return len(self._batch_sampler)
        carried = sum(leftover.stop - leftover.start for leftover in self._carried)
        return self._shards.batches(len(self._job.dataset) + carried)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, in order and augmentation; a sampler that has `set_epoch` is told.

        The epoch of a position that was just loaded changes nothing: iteration goes on where that stands.
        """
        epoch = check_int("epoch", epoch)
        with self._lock:
            stays = epoch == self._loaded_epoch
            if not stays:
                self._loaded_epoch = None
                self._begun = self._current = self._loaded = None
                self._epoch = epoch
            samplers: list[Any] = [self._batch_sampler, getattr(self._batch_sampler, "sampler", None)]
            for sampler in samplers:
                if hasattr(sampler, "set_epoch") and not (stays and knows_epoch(sampler)):
                    sampler.set_epoch(epoch)
                    if self._begun is not None:  # with the order of another epoch
                        self.load_state_dict(self._state_of(self._begun._plan))

    def stats(self) -> LoaderStats:
        """Who makes the batches, why, and how long the program waited for them."""
        choice, tally = self._choice, self._tally
        name, why, workers = self._means.executor, "no worker was started yet", 0
        if choice is not None:
            name, why, workers = choice.name, choice.why, choice.num_workers
        return LoaderStats(name, why, workers, tally.batches, tally.waited_s, tally.made_s)

    def close(self) -> None:
        """Ends the workers and frees the shared memory; a second call does nothing.

        Batches that were delivered stay valid. `with DataLoader(...) as loader` closes at the end of the block; a
        loader that is deleted, or still open when the program ends, is closed too.
        """
        self._closed = True
        if self._begun is not None and (self._current is None or self._current.finished):
            self._current = self._begun._plan  # for state_dict
        self._begun = None
        self._close_executor()

    def __repr__(self) -> str:
        job = self._job
        return f"<DataLoader of {type(job.dataset).__name__}, {self._means.executor}, {job.num_workers} workers>"

    def __getstate__(self) -> dict[str, Any]:
        """All but workers and live iterators: the copy stands where this one does, and starts workers when used."""
        blank = object.__new__(DataLoader)
        blank._become_whole()
        told = {key: value for key, value in self.__dict__.items() if key not in vars(blank)}
        return {**told, "state": self.state_dict()}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        state = fields.pop("state")
        self.__dict__.update(fields)
        self._become_whole()
        self._load(state)

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, as JSON: after the last batch that was delivered, in the epoch that was begun last.

        Returns:
            A dict of a few hundred bytes, whatever the size of the dataset; see `docs/resume.md`.

        Raises:
            TypeError: the state of a sampler or dataset of your own is not JSON.
        """
        with self._lock:
            plan = self._current
            if plan is None or plan.finished:
                plan = None if self._begun is None else self._begun._plan
            if plan is not None:
                return self._state_of(plan)
            if self._loaded is not None:
                return add_checksum(self._loaded.state)
            return self._seal(self._epoch, self._fresh_state())

    def load_state_dict(self, state: Any) -> None:
        """Has the next iteration go on where `state` was saved, in this process or another.

        The number of workers, `prefetch`, executor and start method may differ; what the batches depend on may not.

        Args:
            state: what `state_dict()` returned, or its JSON text.

        Raises:
            ValueError: it does not fit this loader, or was changed; the text names the field. Nothing has changed.
        """
        with self._lock:
            self._load(state)
            if self._auto_reload and not self._closed:
                self._begun = self._begin()

    def _load(self, state: Any) -> None:
        fields = parse_state(state)
        self._check_loader(fields)
        job = self._job if fields["seed"] == self._seed else self._job_with(fields["seed"])
        if self._shards is not None:
            ShardPlan.check(self._shards, fields)
            verify_checksum(fields)
            self._warn_of_reading(fields)
            start = Start()
        else:
            start = self._load_parts(fields)
        self._epoch, self._begun, self._current = fields["epoch"], None, None
        self._loaded_epoch = self._epoch
        for plan in list(self._plans):
            plan.outdated = True
        if job is not self._job:
            self._job, self._seed = job, job.seed
            self._lay_off()
        if self._shards is not None:
            self._carried = ShardPlan.carried_of(self._shards, fields)
        self._loaded = Loaded({key: fields[key] for key in fields if key not in ("version", "check")}, start)

    def _reposition(self, state: Any) -> tuple[Plan, Executor]:
        """For an iterator that goes on at another position: its plan, and who works for it."""
        with self._lock:
            self._load(state)
            if self._pid != os.getpid() and not self._closed:
                self._start()
            self._current = plan = self._next_plan()
            return plan, self._executor

    @property
    def _executor(self) -> Executor:
        assert self._choice is not None
        return self._choice.executor

    def _check_loader(self, fields: dict[str, Any]) -> None:
        if "source" in fields:
            raise ValueError("state: saved by a bridge, and this is a DataLoader; load it into that bridge")
        int_field(fields, "epoch")
        check_same(fields, "length", self._length(), "the dataset here")
        if self._seed_given:
            check_same(fields, "seed", self._seed, "the loader here")
        else:
            int_field(fields, "seed", None)
        if self._has_own_state() != (field(fields, "dataset") is not None):
            own = "has" if self._has_own_state() else "has no"
            raise ValueError(f"state: dataset: the dataset here {own} state of its own, the one that was saved differs")

    def _warn_of_reading(self, fields: dict[str, Any]) -> None:
        samples = fields["batch"] * fields["batch_size"]
        if samples and not any(fields["hints"]):
            warnings.warn(
                f"resuming {type(self._job.dataset).__name__} reads about {samples:,} samples again, to skip them; "
                "a dataset with state_dict() and load_state_dict() is put where it stood",
                RuntimeWarning,
                stacklevel=4,
            )

    def _load_parts(self, fields: dict[str, Any]) -> Start:
        """The states of sampler and dataset; both are as they were if one does not fit."""
        put_back = IndexPlan.keep(self._batch_sampler)
        try:
            start = IndexPlan.load(self._batch_sampler, fields)
            verify_checksum(fields)
            saved = fields["dataset"]
            if saved is not None and saved != self._dataset_state():
                self._job.dataset.load_state_dict(saved)
                self._lay_off()
        except BaseException:
            put_back()
            raise
        return start

    def _lay_off(self) -> None:
        """Workers have the job as it was when they started; others start when they are needed."""
        self._close_executor()
        self._pid = None

    def _state_of(self, plan: Plan) -> dict[str, Any]:
        with plan.lock:
            position = plan.state()
        return self._seal(plan.epoch, position)

    def _seal(self, epoch: int, position: dict[str, Any]) -> dict[str, Any]:
        about = {"length": self._length(), "seed": self._seed, "epoch": epoch, "dataset": self._dataset_state()}
        return add_checksum({**about, **position})

    def _fresh_state(self) -> dict[str, Any]:
        if self._shards is None:
            return IndexPlan.fresh_state(self._batch_sampler)
        return ShardPlan(self._shards, self._epoch, self._seed, -1, self._carried).state()

    def _length(self) -> int | None:
        try:
            return len(self._job.dataset)
        except TypeError:  # it has none, or, as with tf.data, does not know it
            return None

    def _has_own_state(self) -> bool:
        dataset = self._job.dataset
        return not self._job.iterable and has_state(dataset)

    def _dataset_state(self) -> Any:
        dataset = self._job.dataset
        return to_json(type(dataset).__name__, dataset.state_dict()) if self._has_own_state() else None

    def _job_with(self, seed: int) -> Job:
        """The job, where the loader's seed is this one."""
        job, payload = self._job, self._worker_payload
        info = LoaderInfo(job.dataset, self._batch_size, job.num_workers, seed)
        payloads = [payload(info, worker) for worker in range(max(1, job.num_workers))] if payload else []
        return replace(job, seed=seed, payloads=tuple(payloads))

    def _start(self) -> None:
        self._pid = os.getpid()
        if self._tally.pid != self._pid:  # a forked child counts its own, and watches nobody's workers
            self._tally = Tally()
        self._choice = Choice(replace(self._job, epoch=self._epoch), self._means, self._tally, self._choice)
        # Before the Pool's own finalizer (15), which would terminate workers with work in flight.
        self._close_executor = Finalize(self, self._choice.close, exitpriority=20)

    def _begin(self) -> LoaderIterator:
        if self._closed:
            raise LoaderClosed("this DataLoader is closed; make a new one, or iterate inside its `with` block")
        if os.getpid() != self._pid:  # a forked child has no share in the parent's workers
            self._start()
        assert self._choice is not None
        alone = all(iterator.ended for iterator in self._iterators)
        executor = self._choice.next_epoch(alone, waited_for=not self._auto_reload)
        means, plan = self._means, self._next_plan()
        iterator = LoaderIterator(
            executor, plan, means.window, self._in_order, self._timeout, self._finish, self._tally
        )
        self._iterators.add(iterator)
        return iterator

    def _next_plan(self) -> Plan:
        loaded, epoch = self._loaded, self._epoch
        if self._shards is None:
            plan: Plan = IndexPlan(self._batch_sampler, epoch, self._seed, loaded.start if loaded else Start())
        else:
            state = loaded.state if loaded else None
            plan = ShardPlan(self._shards, epoch, self._seed, next(self._iterations), self._carried, state)
        self._loaded, self._epoch = None, epoch + 1
        self._plans.add(plan)
        return plan

    def _epoch_is_over(self, plan: Plan) -> None:
        if isinstance(plan, ShardPlan) and not plan.outdated:
            self._carried = plan.carry
        if self._auto_reload and not self._closed:
            with self._lock, suppress(Exception):  # it is raised again where that epoch is asked for
                if self._begun is None:
                    self._begun = self._begin()
