"""Arrays of other frameworks, in and out. A framework is imported only when the user asks for it by name."""

from .base import Framework as Framework
from .base import Lent as Lent
from .base import leaves_room as leaves_room
from .find import named as named
from .find import owner as owner
from .find import owner_by_base as owner_by_base
from .output import OUTPUTS as OUTPUTS
from .output import converter as converter
from .output import map_arrays as map_arrays
from .output import pinner as pinner
from .worker import enter_worker as enter_worker
from .worker import in_worker as in_worker
from .worker import preparations as preparations
