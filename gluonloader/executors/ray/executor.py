"""The Ray executor: its workers are Ray actors, and batches travel as objects of Ray's store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...work.task import Job
from ..base import usual_window
from ..lanes.executor import LaneExecutor
from .crew import RayCrew
from .lane import RayLane
from .objects import ObjectMemory

# If gluonloader starts Ray, its store has room for batches of this size; Ray writes batches that do not fit to files. A
# larger store would stay slow for longer: Ray goes through all of its pages before it reuses one, and the first use of
# each page is slow.
_USUAL_BATCH: Final = 64 << 20  # bytes


class RayExecutor(LaneExecutor[RayLane]):
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
        room = max(_USUAL_BATCH * (window + 2), 2 * (memory_limit or 0))
        memory = ObjectMemory(window, memory_limit)
        super().__init__(
            job,
            memory,
            lambda _: RayCrew(job, dict(options), memory, room),
            prefetch,
            max_retries,
            max_per_worker,
        )
