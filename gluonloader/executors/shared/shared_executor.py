"""The executor of a rank that shares its workers: batches travel in slabs of the rank, as with workers of its own."""

from __future__ import annotations

from ...memory.slab import Slab
from ...memory.slabs import SlabPool
from ...work.task import Job
from ..base import usual_window
from ..lanes.lane_executor import LaneExecutor
from .crew import SharedCrew
from .node import Node, local_ranks

_LEAST_LIMIT = 1 << 20  # bytes; a loader needs about that much for one small batch


class SharedExecutor(LaneExecutor[Slab]):
    """Makes batches in the `job.num_workers` workers of a node.

    Args:
        ranks: how many ranks share the workers, if no launcher tells it. Each of them may have an equal part of the
            batches that `job.num_workers` workers usually have in flight, and of `memory_limit`.

    The other arguments are those of `DataLoader`.
    """

    def __init__(
        self,
        job: Job,
        node: Node,
        ranks: int,
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        ranks = local_ranks(ranks)
        window = prefetch or max(2, -(-2 * usual_window(job) // ranks))
        limit = None if memory_limit is None else max(_LEAST_LIMIT, memory_limit // ranks)
        super().__init__(
            job,
            SlabPool(window, limit),
            lambda waker: SharedCrew(node, job),
            window,
            max_retries,
            max_per_worker,
        )
