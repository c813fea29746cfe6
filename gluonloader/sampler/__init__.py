"""Samplers decide in which order a dataset is read, and batch samplers cut that order into batches.

ordered         deterministic samplers
shuffled        samplers that yield each index once, in random order
weighted        random samplers that follow weights
sharded         one share of an order, or of a dataset, for each of several processes
buckets         samplers that put samples of similar length together

base            base classes, and BatchSampler
passes          iterators of one epoch
saved           the state of such an iterator, as JSON
bijection       a shuffled order of any length, without a table
ranks           the rank of this process
"""

from .base import BatchSampler as BatchSampler
from .base import OrderedSampler as OrderedSampler
from .base import Sampler as Sampler
from .base import SeededSampler as SeededSampler
from .base import iterate as iterate
from .buckets import ConstWidthBucket as ConstWidthBucket
from .buckets import ExpWidthBucket as ExpWidthBucket
from .buckets import FixedBucketSampler as FixedBucketSampler
from .buckets import LinearWidthBucket as LinearWidthBucket
from .buckets import SortedBucketSampler as SortedBucketSampler
from .buckets import SortedSampler as SortedSampler
from .ordered import FilterSampler as FilterSampler
from .ordered import IntervalSampler as IntervalSampler
from .ordered import SequentialSampler as SequentialSampler
from .passes import BatchPass as BatchPass
from .passes import Pass as Pass
from .passes import Sliceable as Sliceable
from .passes import as_keys as as_keys
from .passes import cut as cut
from .passes import skip as skip
from .saved import knows_epoch as knows_epoch
from .saved import load_saved_pass as load_saved_pass
from .saved import refreshed as refreshed
from .saved import saved_pass as saved_pass
from .sharded import ShardedSampler as ShardedSampler
from .sharded import SplitSampler as SplitSampler
from .shuffled import BlockShuffleSampler as BlockShuffleSampler
from .shuffled import RandomSampler as RandomSampler
from .shuffled import SubsetSampler as SubsetSampler
from .weighted import WeightedSampler as WeightedSampler
