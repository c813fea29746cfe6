"""gluonloader: a data loader with the interface of `mxnet.gluon.data`; it needs only NumPy, works with any framework.

This file exports the names that programs use, and types.py those of what they get. A module imports only from layers
below its layer (tests/test_layers.py checks it):

    types        the classes of what the library returns
    __main__     the command line
    commands     the commands of the command line
    tuning       finds the best arguments of a loader
    serving      one loader for several programs
    mxnet        replaces mxnet.gluon.data
    torch        replaces torch.utils.data.DataLoader
    dropin       what these two share: replacing names, running a script
    bridges, cached, testing
    comparing    differences between two batches
    loader       DataLoader: builds its parts from its arguments
    iterator     one epoch
    loading      arguments, epochs, plans, positions, choice of executor, statistics
    executors    where batches are made: in the caller, in threads, in processes or by Ray
    work         a task, and how one batch is made
    vision       images: decoding, datasets, transforms, a pipeline
    records      RecordIO files
    batchify, packed_stream
    ordered_stream
    dataset, sampler
    memory       the memory in which a batch travels between processes
    frameworks   conversion of arrays of MXNet, torch and JAX to NumPy and back
    ranks
    randomness
    rows, segments
    declared, decoders, describe, indices, limits, state, tree
    checks
    errors, forks, interrupts, progress, units
    current, locks
"""

import typing
import warnings

from . import batchify, types
from .batchify import Append, AsList, Dict, Group, NamedTuple, PackRows, Pad, Split, Stack, default_batchify
from .bridges import Bridge, bridge
from .cached import CachedLoader
from .dataset import (
    ArrayDataset,
    ArrowDataset,
    ConcatDataset,
    Dataset,
    FileDataset,
    H5Dataset,
    NpyDataset,
    PackedDataset,
    PackedList,
    SimpleDataset,
    StackDataset,
    Subset,
    TokenDataset,
    TupleDataset,
    ZarrDataset,
    random_split,
)
from .dataset.iterable import IterableDataset
from .declared import gil_free, thread_safe
from .errors import (
    BatchifyError,
    BatchTimeout,
    GluonLoaderError,
    ImageError,
    LoaderClosed,
    MissingExtraError,
    RecordError,
    SharedMemoryError,
    TokenError,
    TooManyErrors,
    TransportError,
    WorkerDied,
    WorkerStartError,
)
from .loader import DataLoader
from .loading.merging import merge_states
from .memory import empty
from .packed_stream import PackedStream
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
    MixtureSampler,
    PackingSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    ShardedSampler,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
    SubsetSampler,
    TokenBatchSampler,
    WeightedSampler,
)
from .serving import attach, serve
from .tuning import tune
from .work.info import get_worker_info
from .work.tolerance import SKIP

__all__ = [
    "SKIP", "Append", "ArrayDataset", "ArrowDataset", "AsList", "BatchSampler", "BatchTimeout", "BatchifyError",
    "BlockShuffleSampler", "Bridge", "CachedLoader", "ConcatDataset", "ConstWidthBucket", "DataLoader", "Dataset",
    "Dict", "ExpWidthBucket", "FileDataset", "FilterSampler", "FixedBucketSampler", "GluonLoaderError", "Group",
    "H5Dataset", "ImageError", "IntervalSampler", "IterableDataset", "LinearWidthBucket", "LoaderClosed",
    "MissingExtraError", "MixtureSampler", "NamedTuple", "NpyDataset", "PackRows", "PackedDataset", "PackedList",
    "PackedStream", "PackingSampler", "Pad", "RandomSampler", "Ranks", "RecordError", "Rows", "Sampler",
    "SequentialSampler", "ShardedSampler", "SharedMemoryError", "SimpleDataset", "SortedBucketSampler",
    "SortedSampler", "Split", "SplitSampler", "Stack", "StackDataset", "Subset", "SubsetSampler",
    "TokenBatchSampler", "TokenDataset", "TokenError", "TooManyErrors", "TransportError", "TupleDataset",
    "WeightedSampler", "WorkerDied", "WorkerStartError", "ZarrDataset", "attach", "batchify", "bridge",
    "default_batchify", "empty", "get_rng", "get_worker_info", "gil_free", "merge_states", "random_split", "serve",
    "thread_safe", "tune", "types",
]  # fmt: skip

__version__ = "0.2.0"

if not typing.TYPE_CHECKING:  # a type checker knows the names where they are now

    def __getattr__(name: str) -> object:
        """The names of `gluonloader.types`, which were here before version 0.3."""
        if name not in types.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(f"import {name} from gluonloader.types; it will leave gluonloader", DeprecationWarning, 2)
        return getattr(types, name)
