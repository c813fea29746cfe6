"""Random numbers that do not depend on which worker makes a batch. One module for each generator, one for the seeds."""

from .seeds import batch_seed as batch_seed
from .seeds import draw_seed as draw_seed
from .seeds import get_rng as get_rng
from .seeds import preserved_generators as preserved_generators
from .seeds import seed_all as seed_all
from .seeds import seed_restorable as seed_restorable
from .seeds import set_current_seed as set_current_seed
