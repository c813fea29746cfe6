"""The process executor: its workers are processes, and batches travel in slabs."""

from __future__ import annotations

from ...memory.slabs import SlabPool
from ...work.task import Job
from ..lanes.executor import LaneExecutor, usual_window
from .crew import ProcessCrew
from .lane import ProcessLane
from .packed_job import pickle_job


class ProcessExecutor(LaneExecutor[ProcessLane]):
    """Makes batches in `job.num_workers` processes; the other arguments are those of `DataLoader`.

    Raises:
        TransportError: the job has to be pickled and cannot be.
    """

    def __init__(
        self,
        job: Job,
        start_method: str,
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        pickled = None if start_method == "fork" else pickle_job(job, start_method)
        super().__init__(
            job,
            SlabPool(usual_window(job, prefetch), memory_limit),
            lambda waker: ProcessCrew(job, start_method, None if pickled is None else pickled.to_file(), waker),
            prefetch,
            max_retries,
            max_per_worker,
        )
