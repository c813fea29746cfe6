"""Which batch is made next, and where an epoch stands. `IndexPlan` is for indices, `ShardPlan` for shards."""

from ...position.error_count import NOTHING
from .base import Plan
from .indices import IndexPlan, Started
