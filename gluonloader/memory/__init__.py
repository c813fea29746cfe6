"""How a batch travels: `empty` allocates its arrays in recycled shared memory; reduce and rebuild transfer the rest."""

from .allocator import Allocator, empty, empty_of, for_samples, set_allocator
