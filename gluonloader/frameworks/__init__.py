"""Conversion of arrays of other frameworks. A framework is imported only when the user asks for it by name."""

from .base import Framework, Lent, enter_worker, in_worker, leaves_room, preparations
from .find import arriving, named, owner, owner_by_base
from .output import OUTPUTS, converter, map_arrays, pinner
from .states import state_from_json, state_to_json
from .torch import is_shared
