"""gluonloader: a data loader with the interface of MXNet's `gluon.data`, on NumPy alone, for any framework.

The public names, and nothing else. Layers, imports point down only (tests/test_layers.py holds that true):

    mxnet        stands in for mxnet.gluon.data
    bridges, testing
    loader       DataLoader: arguments to parts
    iterator     one epoch
    loading      arguments, plan, window, choice of executor, statistics
    executors    where work runs
    work         a task, and how one batch is made
    batchify
    dataset, sampler
    memory       how a batch travels
    frameworks   arrays of MXNet, torch and JAX, in and out
    randomness
    rows
    declared, indices, limits, state, tree
    checks
    errors
"""

from . import batchify as batchify
from .batchify import Append as Append
from .batchify import AsList as AsList
from .batchify import Dict as Dict
from .batchify import Group as Group
from .batchify import NamedTuple as NamedTuple
from .batchify import Pad as Pad
from .batchify import Split as Split
from .batchify import Stack as Stack
from .batchify import default_batchify as default_batchify
from .bridges import Bridge as Bridge
from .bridges import BridgeIterator as BridgeIterator
from .bridges import BridgeStats as BridgeStats
from .bridges import bridge as bridge
from .dataset import ArrayDataset as ArrayDataset
from .dataset import ArrowDataset as ArrowDataset
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import H5Dataset as H5Dataset
from .dataset import NpyDataset as NpyDataset
from .dataset import PackedList as PackedList
from .dataset import SimpleDataset as SimpleDataset
from .dataset import StackDataset as StackDataset
from .dataset import Subset as Subset
from .dataset import TupleDataset as TupleDataset
from .dataset import ZarrDataset as ZarrDataset
from .dataset import random_split as random_split
from .dataset.iterable import IterableDataset as IterableDataset
from .declared import gil_free as gil_free
from .errors import BatchifyError as BatchifyError
from .errors import BatchTimeout as BatchTimeout
from .errors import GluonLoaderError as GluonLoaderError
from .errors import LoaderClosed as LoaderClosed
from .errors import MissingExtraError as MissingExtraError
from .errors import SharedMemoryError as SharedMemoryError
from .errors import TransportError as TransportError
from .errors import WorkerDied as WorkerDied
from .errors import WorkerStartError as WorkerStartError
from .iterator import LoaderIterator as LoaderIterator
from .loader import DataLoader as DataLoader
from .loading.stats import LoaderStats as LoaderStats
from .memory import empty as empty
from .randomness import get_rng as get_rng
from .rows import Rows as Rows
from .sampler import BatchSampler as BatchSampler
from .sampler import BlockShuffleSampler as BlockShuffleSampler
from .sampler import ConstWidthBucket as ConstWidthBucket
from .sampler import ExpWidthBucket as ExpWidthBucket
from .sampler import FilterSampler as FilterSampler
from .sampler import FixedBucketSampler as FixedBucketSampler
from .sampler import IntervalSampler as IntervalSampler
from .sampler import LinearWidthBucket as LinearWidthBucket
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import ShardedSampler as ShardedSampler
from .sampler import SortedBucketSampler as SortedBucketSampler
from .sampler import SortedSampler as SortedSampler
from .sampler import SplitSampler as SplitSampler
from .sampler import SubsetSampler as SubsetSampler
from .sampler import WeightedSampler as WeightedSampler
from .work.info import LoaderInfo as LoaderInfo
from .work.info import WorkerInfo as WorkerInfo
from .work.info import get_worker_info as get_worker_info

__version__ = "0.1.0"
