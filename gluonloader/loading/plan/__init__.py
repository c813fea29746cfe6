"""Which batch is made next, and where an epoch stands. `IndexPlan` is for indices, `ShardPlan` for shards."""

from .base import NOTHING as NOTHING
from .base import Plan as Plan
from .base import Start as Start
from .indices import IndexPlan as IndexPlan
from .shard_state import Leftover as Leftover
from .shard_state import Shards as Shards
from .shards import ShardPlan as ShardPlan
from .shards import only_sample as only_sample
