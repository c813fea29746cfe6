"""gluonloader: a data loader with the interface of `mxnet.gluon.data`; it needs only NumPy, works with any framework.

This file exports the public names. A module imports only from layers below its layer (tests/test_layers.py checks it):

    __main__     the command line
    commands     the commands of the command line
    mxnet        replaces mxnet.gluon.data
    torch        replaces torch.utils.data.DataLoader
    bridges, cached, testing, tuning
    comparing    differences between two batches
    loader       DataLoader: builds its parts from its arguments
    iterator     one epoch
    loading      arguments, epochs, plans, positions, choice of executor, statistics
    executors    where batches are made: in the caller, in threads, in processes or by Ray
    work         a task, and how one batch is made
    vision       images: decoding, datasets, transforms, a pipeline
    records      RecordIO files
    batchify
    dataset, sampler
    memory       the memory in which a batch travels between processes
    frameworks   conversion of arrays of MXNet, torch and JAX to NumPy and back
    ranks
    randomness
    rows
    declared, decoders, describe, indices, limits, state, tree
    checks
    errors, forks, interrupts, progress, units
"""

from . import batchify
from .batchify import Append, AsList, Dict, Group, NamedTuple, Pad, Split, Stack, default_batchify
from .bridges import Bridge, BridgeIterator, bridge
from .cached import CachedLoader
from .dataset import (
    ArrayDataset,
    ArrowDataset,
    ConcatDataset,
    Dataset,
    FileDataset,
    H5Dataset,
    NpyDataset,
    PackedList,
    SimpleDataset,
    StackDataset,
    Subset,
    TupleDataset,
    ZarrDataset,
    random_split,
)
from .dataset.iterable import IterableDataset
from .declared import gil_free
from .errors import (
    BatchifyError,
    BatchTimeout,
    GluonLoaderError,
    ImageError,
    LoaderClosed,
    MissingExtraError,
    RecordError,
    SharedMemoryError,
    TooManyErrors,
    TransportError,
    WorkerDied,
    WorkerStartError,
)
from .iterator import LoaderIterator
from .loader import DataLoader
from .loading.merging import merge_states
from .loading.stats import EpochStats, LoaderStats
from .loading.trace import Trace
from .memory import empty
from .memory.budget import MemoryStats
from .randomness import get_rng
from .ranks import Ranks
from .rows import Rows
from .sampler import (
    BatchSampler,
    BlockShuffleSampler,
    ConstWidthBucket,
    ExpWidthBucket,
    FilterSampler,
    FixedBucketSampler,
    IntervalSampler,
    LinearWidthBucket,
    RandomSampler,
    Sampler,
    SequentialSampler,
    ShardedSampler,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
    SubsetSampler,
    WeightedSampler,
)
from .tuning import Trial, Tuning, tune
from .work.info import BadSample, BatchInfo, LoaderInfo, WorkerInfo, get_worker_info
from .work.tolerance import SKIP
from .work.usage import WorkerStats

__all__ = [
    "SKIP", "Append", "ArrayDataset", "ArrowDataset", "AsList", "BadSample", "BatchInfo", "BatchSampler",
    "BatchTimeout", "BatchifyError", "BlockShuffleSampler", "Bridge", "BridgeIterator", "CachedLoader", "ConcatDataset",
    "ConstWidthBucket", "DataLoader", "Dataset", "Dict", "EpochStats", "ExpWidthBucket", "FileDataset", "FilterSampler",
    "FixedBucketSampler", "GluonLoaderError", "Group", "H5Dataset", "ImageError", "IntervalSampler", "IterableDataset",
    "LinearWidthBucket", "LoaderClosed", "LoaderInfo", "LoaderIterator", "LoaderStats", "MemoryStats",
    "MissingExtraError", "NamedTuple", "NpyDataset", "PackedList", "Pad", "RandomSampler", "Ranks", "RecordError",
    "Rows", "Sampler", "SequentialSampler", "ShardedSampler", "SharedMemoryError", "SimpleDataset",
    "SortedBucketSampler", "SortedSampler", "Split", "SplitSampler", "Stack", "StackDataset", "Subset", "SubsetSampler",
    "TooManyErrors", "Trace", "TransportError", "Trial", "Tuning", "TupleDataset", "WeightedSampler", "WorkerDied",
    "WorkerInfo", "WorkerStartError", "WorkerStats", "ZarrDataset", "batchify", "bridge", "default_batchify", "empty",
    "get_rng", "get_worker_info", "gil_free", "merge_states", "random_split", "tune",
]  # fmt: skip

__version__ = "0.2.0"
