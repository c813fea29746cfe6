"""The workers of one loader: chooses their executor, starts them and ends them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from ..checks import ExecutorName
from ..declared import caches_of
from ..describe import class_name, counted
from ..errors import LoaderClosed, logger
from ..executors.base import Executor, usual_window
from ..executors.serial import SerialExecutor
from ..executors.shared.dataset_in_server import DatasetInServer
from ..interrupts import Uninterrupted
from ..lengths import length_if_known
from ..limits import has_gil
from ..locks import Lock
from ..options import Ray
from ..randomness import Draws, seed_restorable
from ..statistics import program
from ..statistics.tally import Tally
from ..work.info import LoaderInfo
from ..work.maker import BatchMaker, held_by
from ..work.task import Job
from ..work.usage import NOTHING_SPENT, Usage, WorkerStats
from .choice import Choice, Options, possible, suited

if TYPE_CHECKING:
    from ..statistics.stats import LoaderStats
    from ..statistics.trace import Trace

Payloads = Callable[[int], tuple[Any, ...]]  # takes a seed, returns the payloads of all workers


def payloads_for(
    worker_payload: Callable[[LoaderInfo, int], Any] | None,
    dataset: Any,
    batch_size: int | None,
    num_workers: int,
    seed: int,
) -> tuple[Any, ...]:
    """What `worker_payload` returns for each worker; empty without `worker_payload`."""
    if worker_payload is None:
        return ()
    info = LoaderInfo(dataset, batch_size, num_workers, seed)
    return tuple([worker_payload(info, worker) for worker in range(max(1, num_workers))])


class Workers:
    """Starts workers in the process that needs them, and ends them when the loader is closed or deleted.

    Args:
        job, options: what workers make, and how.
        payloads: computes the payloads of a job with another seed.

    Attributes:
        job: as above; see `change_job`.
        tally: the counts of all iterators.
        closed: the loader was closed, so no worker will start any more.
        block_ended: the `with` block of the loader has ended; may be set.
        words: changes the words of the advice, for a drop-in whose arguments have other names; may be set.
        number: of the user's loader, for `program.note`; a drop-in that replaces its workers may set it.
        lock_here: held while the calling thread makes a batch that no executor makes.
    """

    def __init__(self, job: Job, options: Options, payloads: Payloads) -> None:
        self.job, self.options, self.closed = job, options, False
        self.block_ended = False
        self.words: Callable[[str], str] = str
        self.number = next(program.numbers)
        self.tally = Tally()
        self._copied_length: int | None = None
        self._payloads = payloads
        self._lock = Lock()  # while the executor changes
        self.lock_here = Lock()
        self._maker_here: tuple[Job, int, BatchMaker] | None = None  # with its job and its process
        self._maker_finalizer: Finalize | None = None  # closes it, like `_finalizer`
        self._choice: Choice | None = None
        self._executor: Executor | None = None
        self._earlier = NOTHING_SPENT  # the sum of the times of workers of earlier executors
        self._pid: int | None = None  # the process that started the workers
        self._finalizer: Finalize | None = None  # closes the executor when the program ends or this object is deleted

    def __reduce__(self) -> Any:
        return Workers, (self.job, self.options, self._payloads), {"closed": self.closed}

    def job_with(self, seed: int) -> Job:
        """The job with this seed, and with the payloads that `worker_payload` computes for this seed."""
        return self.job if seed == self.job.seed else replace(self.job, seed=seed, payloads=self._payloads(seed))

    def change_job(self, job: Job) -> None:
        """Ends the workers if they have a different job; when workers are needed again, new ones start with `job`."""
        if job is not self.job:
            self.stop()
            self.job = job

    def start(self, epoch: int) -> Executor:
        """Starts workers in this process; `epoch` is the first epoch for which they make batches."""
        if self.tally.pid != os.getpid():  # a forked child counts its own batches
            self.tally = Tally()
        choice, job, options = self._chosen(), replace(self.job, epoch=epoch), self.options
        has_copies = job.iterable and choice.name in ("process", "ray")
        self._copied_length = length_if_known(job.dataset) if has_copies else None
        executor = _new_executor(choice.name, job, options)
        if options.executor == "auto":
            logger().debug("executor='auto': %s, because %s", choice.name, choice.why)
        if self.tally.trace is not None:
            self.tally.trace.watch(executor.usage)
        self._choice, self._executor, self._pid = choice, executor, os.getpid()
        # Runs before the Pool's own finalizer (priority 15), which would terminate busy workers.
        self._finalizer = Finalize(self, _close_when_deleted, args=(executor,), exitpriority=20)
        if self.closed:  # by a signal handler, meanwhile
            executor.close()
        return executor

    def _chosen(self) -> Choice:
        name = self.options.executor
        if name == "auto":
            return possible(suited(self.job))
        given = "num_workers=0" if name == "serial" else f'executor="{name}"'
        return possible(Choice(name, f"{given if self.options.meeting is None else 'share'} was given"))

    @property
    def in_this_process(self) -> bool:
        """Whether this process has started the workers; a forked child cannot use the workers of its parent."""
        return self._pid == os.getpid()

    @property
    def copied_length(self) -> int | None:
        """The length of an iterable dataset when the workers got their copies of it.

        It is None if the dataset has no length, for other datasets, and if workers have no copies.
        """
        return self._copied_length if self.in_this_process else None

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes that run now; empty if the workers are no processes of this one."""
        processes: list[BaseProcess] = getattr(self._executor, "processes", []) if self.in_this_process else []
        return processes

    def executor(self, epoch: int) -> Executor:
        """The current executor; starts workers if there are none.

        Raises:
            LoaderClosed: the loader is closed.
        """
        if self.closed:
            raise LoaderClosed("this DataLoader is closed; make a new one, or iterate inside its `with` block")
        return self._executor if self._executor is not None and self.in_this_process else self.start(epoch)

    @property
    def prefetch(self) -> int:
        """The maximum number of batches that workers make ahead now; 0 if the caller makes each batch."""
        if self._executor is None:  # the loader was copied or unpickled, and its workers start at the first use
            return 0 if self.options.executor == "serial" else self.options.prefetch or usual_window(self.job)
        return 0 if isinstance(self._executor, SerialExecutor) else self._executor.window

    def next_executor(self, epoch: int) -> Executor:
        """`executor` for an epoch that starts now; only one thread at a time starts workers."""
        with self._lock:
            return self.executor(epoch)

    def maker_here(self, epoch: int) -> BatchMaker:
        """Makes batches in the calling thread, besides the workers; it seeds as the serial executor does."""
        known = self._maker_here
        if known is not None and known[0] is self.job and known[1] == os.getpid():
            return known[2]
        self._close_maker_here()
        # One sample at a time, so that a debugger can step through the dataset.
        dataset = self.job.dataset.build() if isinstance(self.job.dataset, DatasetInServer) else self.job.dataset
        job = replace(self.job, dataset=dataset, reading=replace(self.job.reading, concurrency=1))
        maker = BatchMaker(job, 0, seed_restorable)
        with maker.running():
            maker.start(epoch)
            maker.find_generators()
        if maker.may_draw and not maker.held:
            maker.held = held_by(job)  # they are not seeded, but restored
        self._maker_finalizer = Finalize(self, _close_when_deleted, args=(maker,), exitpriority=20)
        self._maker_here = self.job, os.getpid(), maker
        return maker

    def _close_maker_here(self) -> None:
        self._maker_here, finalizer = None, self._maker_finalizer
        if finalizer is not None:
            finalizer()  # closes it, unless it belongs to the parent process or was closed before

    def _close_executor(self) -> None:
        if self._executor is not None and self.in_this_process:
            self._executor.close()

    def stop(self) -> None:
        """Ends the workers; when workers are needed again, new ones start with the current job."""
        self._close_executor()
        if self._finalizer is not None:
            self._finalizer.cancel()
        if self._executor is not None and self.in_this_process:
            usage = self._executor.usage
            self._earlier = sum(usage.fold().values(), self._earlier)
            self.tally.deaths, self.tally.retries = self.tally.deaths + usage.deaths, self.tally.retries + usage.retries
        self._pid = None

    def close(self) -> None:
        """Ends the workers for good."""
        self.closed = True
        if self.tally.trace is not None:
            self.tally.trace.stop()
        self._close_executor()
        self._close_maker_here()
        if self.options.meeting is not None:
            self.options.meeting.leave()

    def describe(self) -> list[str]:
        """Describes the workers for `repr`: `["2 processes"]`, or [] without workers."""
        automatic, count = self.options.executor == "auto", self.job.num_workers
        name = self.options.executor if self._choice is None else self._choice.name
        names = {
            "process": ("process", "processes"),
            "thread": ("thread", "threads"),
            "ray": ("Ray actor", "Ray actors"),
        }
        text = counted(count, *names[name]) if name in names else ""
        if self.options.meeting is not None and self.in_this_process:
            text += f" for {counted(getattr(self._executor, 'ranks', 1), 'rank', 'ranks')}"
        return [f"executor='auto' ({text or 'no workers'})"] if automatic else [text] * bool(text)

    def trace(self, path: str | os.PathLike[str], batches: int) -> Trace:
        """Starts to record what the program and the workers do; an earlier recording is stopped."""
        from ..statistics.trace import Trace

        trace = Trace(path, batches)
        self.record(trace)
        return trace

    def record(self, trace: Trace) -> None:
        """Lets `trace` record what the program and the workers do from now on."""
        if self.tally.trace is not None:
            self.tally.trace.stop()
        self.tally.trace = trace
        trace.describe_by(self._lent, partial(self._verdict_since, self._figures()))
        if self._executor is not None and self.in_this_process:
            trace.watch(self._executor.usage)

    def _verdict_since(self, start: LoaderStats) -> str:
        return self._advised(self._figures().since(start)).verdict

    def _lent(self) -> int:
        memory = None if self._executor is None else self._executor.memory()
        return 0 if memory is None else memory.lent

    def note_epoch(self) -> None:
        """Counts an epoch that starts now among those of the program, if the program wants that."""
        if program.is_watched() and self._executor is not None:
            about = partial(_statistics, **self._about(), **self._advisable())
            program.note(self.number, class_name(self.job.dataset), about, self.tally, self._executor.usage)

    def stats(self) -> LoaderStats:
        stats = self._advised(self._figures())
        caches = caches_of(self.job.dataset)
        return replace(stats, cache=caches[0].stats_if_known()) if caches else stats

    def _advised(self, stats: LoaderStats) -> LoaderStats:
        return _advised(stats, **self._advisable())

    def _advisable(self) -> dict[str, Any]:
        """What the advice depends on besides the figures."""
        has_no_effect = self.job.iterable or (not self._started_workers and hasattr(self.job.dataset, "__getitems__"))
        return {
            "words": self.words,
            "overlaps": not has_no_effect,
            "is_automatic": self.options.executor == "auto",
        }

    def _figures(self) -> LoaderStats:
        from ..statistics.stats import summarize

        executor = self._executor if self.in_this_process else None
        usage, memory = (Usage(), None) if executor is None else (executor.usage, executor.memory())
        return summarize(self.tally, usage, self._earlier, memory, **self._about())

    def _about(self) -> dict[str, Any]:
        """What statistics say about the loader besides the figures."""
        choice = self._choice or Choice(self.options.executor, "no worker has started yet")
        return {
            "executor": choice.name,
            "why": choice.why,
            "num_workers": self._started_workers,
            "window": self.prefetch,
            "concurrency": self.job.reading.concurrency,
        }

    @property
    def _started_workers(self) -> int:
        """The number of workers that were started."""
        return 0 if self._choice is None or self._choice.name == "serial" else self.job.num_workers


def _statistics(
    tally: Tally,
    usage: Usage,
    earlier: WorkerStats,
    *,
    words: Callable[[str], str],
    overlaps: bool,
    is_automatic: bool,
    **about: Any,
) -> LoaderStats:
    """The statistics of a loader that may be gone."""
    from ..statistics.stats import summarize

    return _advised(summarize(tally, usage, earlier, **about), words, overlaps, is_automatic)


def _advised(stats: LoaderStats, words: Callable[[str], str], overlaps: bool, is_automatic: bool) -> LoaderStats:
    from ..statistics.advice import advise

    has_undeclared = is_automatic and stats.executor == "process" and not has_gil()
    return replace(stats, advice=words(advise(stats, overlaps, has_undeclared)))


def _new_executor(name: ExecutorName, job: Job, options: Options) -> Executor:
    """Each executor is imported at its first use: a program rarely needs more than one."""
    if name == "serial":
        return SerialExecutor(job)
    if name == "thread":
        from ..executors.thread import ThreadExecutor

        draws = Draws(held_by(job)) if options.executor == "auto" and not has_gil() else None
        return ThreadExecutor(job, options.prefetch or usual_window(job), draws)
    own = options.workers
    limits = options.prefetch, own.max_retries, options.memory_limit, own.max_per_worker
    if isinstance(own, Ray):
        from ..executors.ray.ray_executor import RayExecutor

        return RayExecutor(job, own.options, *limits)
    if options.meeting is not None:
        from ..executors.shared.shared_executor import SharedExecutor

        return SharedExecutor(job, options.meeting, options.ranks, *limits)
    from ..executors.process.process_executor import ProcessExecutor

    return ProcessExecutor(job, options.start_method, *limits)


def _close_when_deleted(maker: Executor | BatchMaker) -> None:
    """Python drops an exception of a signal handler here, and the workers would stay; so handlers run afterwards."""
    with Uninterrupted():
        maker.close()
