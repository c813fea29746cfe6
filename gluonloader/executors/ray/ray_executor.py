"""The Ray executor: its workers are Ray actors, and batches travel as objects of Ray's store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ...work.task import Job
from ..base import usual_window
from ..lanes.lane_executor import LaneExecutor
from .crew import RayCrew
from .objects import ObjectMemory, StoredBatch


class RayExecutor(LaneExecutor[StoredBatch]):
    """Makes batches in `job.num_workers` Ray actors; the other arguments are those of `DataLoader`.

    Raises:
        MissingExtraError: Ray is not installed.
        TransportError: the job cannot be pickled.
    """

    def __init__(
        self,
        job: Job,
        options: Mapping[str, Any],
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        window = prefetch or usual_window(job)
        memory = ObjectMemory(window, memory_limit)
        super().__init__(
            job,
            memory,
            lambda waker: RayCrew(job, dict(options), memory, waker),
            prefetch,
            max_retries,
            max_per_worker,
        )

    def close(self) -> None:
        """See `Executor.close`. In a thread of Ray this returns at once, and another thread closes.

        The garbage collector may run in a thread of Ray, and delete a loader there. `close` waits for answers of Ray,
        which only that thread could bring.
        """
        if isinstance(threading.current_thread(), threading._DummyThread):  # Python has not started this thread
            threading.Thread(target=super().close, name="gluonloader closes a loader").start()
        else:
            super().close()
