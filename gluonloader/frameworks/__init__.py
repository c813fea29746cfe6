"""Arrays of other frameworks, in and out. No framework is imported here, unless its arrays were asked for by name."""

from .base import Framework as Framework
from .base import Lent as Lent
from .base import in_worker as in_worker
from .base import leaves_room as leaves_room
from .find import mxnet_arrays as mxnet_arrays
from .find import named as named
from .find import owner as owner
from .find import owner_by_base as owner_by_base
from .loaded import PreservedGenerators as PreservedGenerators
from .loaded import enter_worker as enter_worker
from .loaded import preparations as preparations
from .loaded import seed_generators as seed_generators
from .loaded import seed_restorable as seed_restorable
from .loaded import state_of_generators as state_of_generators
from .tree import OUTPUTS as OUTPUTS
from .tree import converter as converter
from .tree import map_arrays as map_arrays
from .tree import pinner as pinner

__all__ = [
    "OUTPUTS",
    "Framework",
    "Lent",
    "PreservedGenerators",
    "converter",
    "enter_worker",
    "in_worker",
    "leaves_room",
    "map_arrays",
    "mxnet_arrays",
    "named",
    "owner",
    "owner_by_base",
    "pinner",
    "preparations",
    "seed_generators",
    "seed_restorable",
    "state_of_generators",
]
