"""The classes of what gluonloader returns: iterators, statistics, and what is known about batches and workers.

Programs get these objects, and do not make them. So the names are for annotations and for `isinstance`.
"""

from .bridges.bridge import Bridge
from .iterator import LoaderIterator
from .memory.budget import MemoryStats
from .sampler.mixture import SourceStats
from .segments import PackedRow, Segments
from .serving.client import ServedIterator, ServedLoader
from .serving.server import Server
from .serving.stats import ConsumerStats, ServerStats
from .statistics.stats import EpochStats, LoaderStats
from .statistics.trace import Trace
from .stores.cache import CacheStats
from .text.packing import PackingStats
from .text.token_batches import TokenBatchStats
from .tools.tuning.trial import Trial
from .tools.tuning.tuner import Tuning
from .work.info import BadSample, BatchInfo, LoaderInfo, WorkerInfo
from .work.usage import WorkerStats

__all__ = [
    "BadSample", "BatchInfo", "Bridge", "CacheStats", "ConsumerStats", "EpochStats", "LoaderInfo", "LoaderIterator",
    "LoaderStats", "MemoryStats", "PackedRow", "PackingStats", "Segments", "ServedIterator", "ServedLoader",
    "Server", "ServerStats", "SourceStats", "TokenBatchStats", "Trace", "Trial", "Tuning", "WorkerInfo",
    "WorkerStats",
]  # fmt: skip
