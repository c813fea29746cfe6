"""The classes of what gluonloader returns: iterators, statistics, and what is known about batches and workers.

Programs get these objects, and do not make them. So the names are for annotations and for `isinstance`.
"""

from .bridges import BridgeIterator
from .iterator import LoaderIterator
from .loading.stats import EpochStats, LoaderStats
from .loading.trace import Trace
from .memory.budget import MemoryStats
from .sampler.mixture import SourceStats
from .sampler.packing import PackingStats
from .sampler.token_batches import TokenBatchStats
from .segments import PackedRow, Segments
from .serving import ConsumerStats, ServedIterator, ServedLoader, Server, ServerStats
from .tuning import Trial, Tuning
from .work.info import BadSample, BatchInfo, LoaderInfo, WorkerInfo
from .work.usage import WorkerStats

__all__ = [
    "BadSample", "BatchInfo", "BridgeIterator", "ConsumerStats", "EpochStats", "LoaderInfo", "LoaderIterator",
    "LoaderStats", "MemoryStats", "PackedRow", "PackingStats", "Segments", "ServedIterator", "ServedLoader",
    "Server", "ServerStats", "SourceStats", "TokenBatchStats", "Trace", "Trial", "Tuning", "WorkerInfo",
    "WorkerStats",
]  # fmt: skip
