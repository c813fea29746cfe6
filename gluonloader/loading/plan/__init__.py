"""Which batch is made next, and where an epoch stands. `IndexPlan` is for indices, `ShardPlan` for shards."""

from .base import NOTHING, Plan, Start
from .indices import IndexPlan, Started
from .shard_state import Leftover, Shards
from .shards import ShardPlan, only_sample
