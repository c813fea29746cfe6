"""The executor of a rank that shares its workers: batches travel in slabs of the rank, as with workers of its own."""

from __future__ import annotations

from ...memory.slab import Slab
from ...memory.slabs import SlabPool
from ...ranks import local_ranks
from ...work.task import Job
from ..base import usual_window
from ..lanes.lane_executor import LaneExecutor
from .crew import SharedCrew
from .meeting import Meeting

_LEAST_LIMIT = 1 << 20  # bytes; a loader needs about that much for one small batch


class SharedExecutor(LaneExecutor[Slab]):
    """Makes batches in the `job.num_workers` workers of a node.

    Args:
        ranks: the number of ranks on this machine, if the launcher does not tell it. Each of them gets an equal part of
            `memory_limit`, and of the large batches that would be in flight without `prefetch`, but at least 2.

    The other arguments are those of `DataLoader`.
    """

    crew: SharedCrew

    def __init__(
        self,
        job: Job,
        meeting: Meeting,
        ranks: int,
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        ranks = local_ranks(ranks)
        usual = max(2, -(-usual_window(job) // ranks))
        limit = None if memory_limit is None else max(_LEAST_LIMIT, memory_limit // ranks)
        super().__init__(
            job,
            SlabPool(prefetch or usual, limit),
            lambda waker: SharedCrew(meeting, job),
            prefetch,
            max_retries,
            max_per_worker,
            usual,
        )
