"""Keeps other threads from forking in a block, so that a forked child can close descriptors that it must not keep.

NOTE [no fork]: a forked child closes the slabs and the sockets of its parent. At a fork, the code that closes them has
to know each open descriptor, and no descriptor that another thread has closed: its number may belong to another file
now. So a thread opens and notes a descriptor, or closes and forgets it, in a `no_fork` block. A fork waits for the end
of such blocks. They are short and take no other lock.
"""

from __future__ import annotations

import os
from typing import Final

from .locks import Lock

no_fork: Final = Lock()  # reentrant, since the thread that holds it may fork: in a signal handler, say

os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
