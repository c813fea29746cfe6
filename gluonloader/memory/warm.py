"""Keeps freed memory in this process, so that each sample reuses the pages of the previous sample.

By default, glibc returns large freed blocks to the system. If each sample allocates large arrays, for example decoded
images, then each sample causes page faults for these arrays, which can take as long as the decoding. But glibc adapts:
after a program has freed a block of at most 32 MB, glibc keeps freed blocks of up to this size, and returns memory to
the system only above twice this size. So this module allocates and frees one block. It touches no page of the block. If
the user has set `MALLOC_TRIM_THRESHOLD_`, glibc does not adapt, and the user's threshold applies.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

# glibc adapts to blocks of at most 32 MB, including its own header.
LARGEST_IN_WORKER: Final = (32 << 20) - (64 << 10)  # bytes
# Threads share their memory with the user's program, and a larger block would make samples of 16 MB slower.
LARGEST_IN_PROGRAM: Final = 8 << 20  # bytes


def keep_freed_memory(largest: int) -> None:
    """Makes glibc keep freed blocks of at most `largest` bytes; does nothing with other C libraries."""
    with suppress(MemoryError):
        np.empty(largest, np.uint8)
