"""Keeps freed memory in this process, so that every sample reuses the pages of the sample before.

glibc returns large freed blocks to the system. Each sample that allocates, say, a decoded image would then fault all of
its pages in again, which can take as long as the decoding. glibc adapts: when a block of up to 32 MB is freed for the
first time, it keeps blocks of this size from then on, and returns memory only above twice this size. Allocating and
freeing one block is enough. None of its pages is touched, and a `MALLOC_TRIM_THRESHOLD_` of the user still decides.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

# glibc adapts to blocks of at most 32 MB, including its own header.
OF_A_PROCESS: Final = (32 << 20) - (64 << 10)  # bytes
# Threads share their memory with the program of the user, and larger blocks make samples of 16 MB slower.
OF_A_PROGRAM: Final = 8 << 20  # bytes


def keep_freed_memory(largest: int) -> None:
    """Makes glibc keep freed blocks of at most `largest` bytes; does nothing with other C libraries."""
    with suppress(MemoryError):
        np.empty(largest, np.uint8)
