"""The workers of one loader: when they start, what they are given, and when they end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Any

from ..errors import LoaderClosed
from ..executors.base import Executor
from ..work.info import LoaderInfo
from ..work.task import Job
from .choice import Choice, Options
from .stats import LoaderStats, Tally

Payload = Callable[[LoaderInfo, int], Any]


class Workers:
    """Starts workers in the process that needs them, and ends them when the loader is closed or deleted.

    Args:
        job, options: what workers make, and how.
        batch_size, worker_payload: to compute the payloads of another job; see `job_with`.

    Attributes:
        job: may be set after `stop`.
        tally: what iterators count.
        closed: the loader was closed, so no worker will start any more.
    """

    def __init__(self, job: Job, options: Options, batch_size: int | None, worker_payload: Payload | None) -> None:
        self.job, self.options, self.closed = job, options, False
        self.tally = Tally()
        self._batch_size, self._worker_payload = batch_size, worker_payload
        self._choice: Choice | None = None
        self._pid: int | None = None  # the process that started the workers
        self._close_executor: Callable[[], object] = lambda: None

    def __reduce__(self) -> Any:
        arguments = self.job, self.options, self._batch_size, self._worker_payload
        return Workers, arguments, {"closed": self.closed}

    def job_with(self, seed: int) -> Job:
        """The job with another seed, and the payloads that `worker_payload` computes for that."""
        job, payload = self.job, self._worker_payload
        info = LoaderInfo(job.dataset, self._batch_size, job.num_workers, seed)
        payloads = [payload(info, worker) for worker in range(max(1, job.num_workers))] if payload else []
        return replace(job, seed=seed, payloads=tuple(payloads))

    def start(self, epoch: int) -> None:
        """Starts workers in this process; `epoch` is the first that they will work for."""
        self._pid = os.getpid()
        if self.tally.pid != self._pid:  # a forked child counts its own batches
            self.tally = Tally()
        self._choice = choice = Choice(replace(self.job, epoch=epoch), self.options, self.tally, self._choice)
        # Before the Pool's own finalizer (priority 15), which would terminate workers while work is in flight.
        self._close_executor = Finalize(self, choice.close, exitpriority=20)

    @property
    def in_this_process(self) -> bool:
        """Whether this process has started the workers; a forked child cannot use those of its parent."""
        return self._pid == os.getpid()

    def next_executor(self, epoch: int, alone: bool) -> Executor:
        """The executor for an epoch that starts now; `alone`: no other epoch is under way.

        Raises:
            LoaderClosed: the loader is closed.
        """
        if self.closed:
            raise LoaderClosed("this DataLoader is closed; make a new one, or iterate inside its `with` block")
        if not self.in_this_process:
            self.start(epoch)
        assert self._choice is not None
        return self._choice.next_executor(alone)

    def executor(self, epoch: int) -> Executor:
        """The executor as it is; workers start if there are none and the loader is open."""
        if not self.in_this_process and not self.closed:
            self.start(epoch)
        assert self._choice is not None
        return self._choice.executor

    def stop(self) -> None:
        """Ends the workers; others start when they are needed, with the job as it is then."""
        self._close_executor()
        self._pid = None

    def close(self) -> None:
        """Ends the workers for good."""
        self.closed = True
        self._close_executor()

    def stats(self) -> LoaderStats:
        """See `DataLoader.stats`."""
        choice, tally = self._choice, self.tally
        name, why, workers = self.options.executor, "no worker has started yet", 0
        if choice is not None:
            name, why, workers = choice.name, choice.why, choice.num_workers
        return LoaderStats(name, why, workers, tally.batches, tally.waited_s, tally.made_s)
