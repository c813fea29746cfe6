"""gluonloader: a data loader with the interface of MXNet's `gluon.data`, on NumPy alone, for any framework.

The public names, and nothing else. Layers, imports point down only (tests/test_layers.py holds that true):

    mxnet        stands in for mxnet.gluon.data
    loader
    buckets, split
    arguments
    executors    where work runs
    transport    how a batch travels
    batchify, window, sampler, dataset
    memory, randomness
    frameworks   arrays of MXNet, torch and JAX, in and out
    errors, containers
"""

from . import batchify as batchify
from .batchify import Append as Append
from .batchify import AsList as AsList
from .batchify import Dict as Dict
from .batchify import Group as Group
from .batchify import NamedTuple as NamedTuple
from .batchify import Pad as Pad
from .batchify import Stack as Stack
from .batchify import default_batchify as default_batchify
from .buckets import ConstWidthBucket as ConstWidthBucket
from .buckets import ExpWidthBucket as ExpWidthBucket
from .buckets import FixedBucketSampler as FixedBucketSampler
from .buckets import LinearWidthBucket as LinearWidthBucket
from .buckets import SortedBucketSampler as SortedBucketSampler
from .buckets import SortedSampler as SortedSampler
from .buckets import SplitSampler as SplitSampler
from .dataset import ArrayDataset as ArrayDataset
from .dataset import Dataset as Dataset
from .dataset import SimpleDataset as SimpleDataset
from .errors import BatchifyError as BatchifyError
from .errors import BatchTimeout as BatchTimeout
from .errors import GluonLoaderError as GluonLoaderError
from .errors import LoaderClosed as LoaderClosed
from .errors import MissingExtraError as MissingExtraError
from .errors import SharedMemoryError as SharedMemoryError
from .errors import TransportError as TransportError
from .errors import WorkerDied as WorkerDied
from .errors import WorkerStartError as WorkerStartError
from .executors.base import WorkerInfo as WorkerInfo
from .executors.base import get_worker_info as get_worker_info
from .loader import DataLoader as DataLoader
from .loader import LoaderIterator as LoaderIterator
from .memory import empty as empty
from .randomness import get_rng as get_rng
from .sampler import BatchSampler as BatchSampler
from .sampler import FilterSampler as FilterSampler
from .sampler import IntervalSampler as IntervalSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .split import Split as Split

__version__ = "0.1.0"
