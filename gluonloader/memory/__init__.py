"""How a batch travels: `empty` makes its arrays in recycled shared memory, and reduce and rebuild carry the rest."""

from .allocator import Allocator, empty, empty_of, set_allocator
