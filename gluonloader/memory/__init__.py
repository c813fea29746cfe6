"""How a batch travels: `empty` makes its arrays in recycled shared memory, and reduce and rebuild carry the rest."""

from .allocator import Allocator as Allocator
from .allocator import empty as empty
from .allocator import empty_of as empty_of
from .allocator import set_allocator as set_allocator
