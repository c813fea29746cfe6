"""Which batch is made next, and where an epoch stands. `IndexPlan` is for indices, `ShardPlan` for shards."""

from .base import Plan, Start
from .errors import NOTHING
from .indices import IndexPlan, Started
