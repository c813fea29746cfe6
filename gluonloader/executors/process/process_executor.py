"""The process executor: its workers are processes, and batches travel in slabs."""

from __future__ import annotations

import socket
from multiprocessing.process import BaseProcess

from ...memory.slab import Slab
from ...memory.slabs import SlabPool
from ...work.task import Job
from ..base import usual_window
from ..lanes.lane_executor import LaneExecutor
from .crew import ProcessCrew
from .inheritance import Inheritance
from .mapped_job import pickle_for, write_job


class ProcessExecutor(LaneExecutor[Slab]):
    """Makes batches in `job.num_workers` processes; the other arguments are those of `DataLoader`.

    Raises:
        TransportError: the job has to be pickled and cannot be.
    """

    crew: ProcessCrew

    def __init__(
        self,
        job: Job,
        start_method: str,
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        inheritance = Inheritance()
        pickled = None if start_method == "fork" else pickle_for(start_method, job, inheritance)

        def open_crew(waker: socket.socket) -> ProcessCrew:
            mapped = None if pickled is None else write_job(pickled)
            return ProcessCrew(job, start_method, mapped, inheritance, waker)

        super().__init__(
            job,
            SlabPool(prefetch or usual_window(job), memory_limit),
            open_crew,
            prefetch,
            max_retries,
            max_per_worker,
        )

    @property
    def processes(self) -> list[BaseProcess]:
        return self.crew.processes
