"""Arrays of other frameworks, in and out. A framework is imported only when the user asks for it by name."""

from .base import Framework, Lent, leaves_room
from .find import named, owner, owner_by_base
from .output import OUTPUTS, converter, map_arrays, pinner
from .worker import enter_worker, in_worker, preparations
