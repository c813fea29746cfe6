"""Random numbers that do not depend on which worker makes a batch: a module for each generator, and one for seeds."""

from .drawn import Draws
from .held import Held, find_generators, seed_also
from .seeds import (
    CurrentBatch,
    PreservedGenerators,
    batch_seed,
    checked_seed,
    current_batch,
    get_rng,
    postponed,
    seed_all,
    seed_restorable,
    set_current_batch,
    set_current_seed,
)
from .spared import SparedGenerators
