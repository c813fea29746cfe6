"""Keeps freed memory in this process, so that each sample reuses the pages of the previous sample.

By default, glibc returns large freed blocks to the system. If each sample allocates large arrays, for example decoded
images, then each sample causes page faults for these arrays, which can take as long as the decoding. But glibc adapts:
if a program frees a block of at most 32 MB, glibc from then on keeps freed blocks of up to the size of this block, and
returns memory to the system only if more than twice this size is free. So this module allocates a block and frees it.
It does not touch the pages of the block. If the user has set `MALLOC_TRIM_THRESHOLD_`, glibc does not adapt, and the
threshold of the user applies.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

# glibc adapts to blocks of at most 32 MB, including the header that glibc adds to a block.
LARGEST_IN_WORKER: Final = (32 << 20) - (64 << 10)  # bytes
# Threads share memory with the user's program, in which a larger block would make samples of 16 MB slower.
LARGEST_IN_PROGRAM: Final = 8 << 20  # bytes


def keep_freed_memory(largest: int) -> None:
    """Makes glibc keep freed blocks of at most `largest` bytes. With other C libraries, it does nothing."""
    with suppress(MemoryError):
        np.empty(largest, np.uint8)
