"""The memory of a server that a consumer maps."""

import os

from gluonloader.memory.slab import anonymous_file, reserve
from gluonloader.serving.mapping import Mappings


def test_a_slab_that_the_server_has_closed_already_is_not_mapped():
    mappings, descriptor = Mappings(), anonymous_file()
    mappings.add(1, descriptor)  # empty: the server has given back its memory
    assert mappings.lend(7, 1, 1, False) is None
    descriptor = anonymous_file()
    reserve(descriptor, 4096)
    kept = os.dup(descriptor)
    mappings.add(2, descriptor)
    os.close(kept)
    assert mappings.lend(7, 2, 4096, False) is not None
