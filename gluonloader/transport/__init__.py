"""How a batch travels: slabs of recycled shared memory, and reduce / rebuild to and from them."""
