"""Samplers: in what order a dataset is read, and how indices are cut into batches. What Gluon has means the same here.

base            passes, batches, positions
ordered         without chance
shuffled        each index once, by chance
weighted        by weight
sharded         shared out over ranks
bijection       an order of n indices without a table of them
"""

from .base import BatchPass as BatchPass
from .base import BatchSampler as BatchSampler
from .base import OrderedSampler as OrderedSampler
from .base import Pass as Pass
from .base import Sampler as Sampler
from .base import SeededSampler as SeededSampler
from .base import Sliceable as Sliceable
from .base import as_keys as as_keys
from .base import cut as cut
from .base import iterate as iterate
from .base import knows_epoch as knows_epoch
from .base import load_saved_pass as load_saved_pass
from .base import refreshed as refreshed
from .base import saved_pass as saved_pass
from .base import skip as skip
from .ordered import FilterSampler as FilterSampler
from .ordered import IntervalSampler as IntervalSampler
from .ordered import SequentialSampler as SequentialSampler
from .sharded import ShardedSampler as ShardedSampler
from .shuffled import BlockShuffleSampler as BlockShuffleSampler
from .shuffled import RandomSampler as RandomSampler
from .shuffled import SubsetSampler as SubsetSampler
from .weighted import WeightedSampler as WeightedSampler

__all__ = [
    "BatchPass",
    "BatchSampler",
    "BlockShuffleSampler",
    "FilterSampler",
    "IntervalSampler",
    "OrderedSampler",
    "Pass",
    "RandomSampler",
    "Sampler",
    "SeededSampler",
    "SequentialSampler",
    "ShardedSampler",
    "Sliceable",
    "SubsetSampler",
    "WeightedSampler",
    "as_keys",
    "cut",
    "iterate",
    "knows_epoch",
    "load_saved_pass",
    "refreshed",
    "saved_pass",
    "skip",
]
