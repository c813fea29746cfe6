"""A batch that has come back in a slab, until somebody takes it.

take -> the slab is lent: views on it         discard -> the slab is free, when the executor next looks
     -> or it had to leave its slab: views on private memory
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import add_note
from ...memory.reduce import Head, rebuild
from ...memory.slab import Slab
from ...work.maker import Remainder, Unsplit
from ...work.task import Part, Task

__all__ = ["Landed"]


class Lender(Protocol):
    """The executor, as landed batches know it."""

    discarded: deque[Landed]

    def lend(self, landed: Landed) -> Any: ...


@dataclass(slots=True, eq=False)
class Landed:
    """A batch that lies in a slab, not delivered yet; an `Outcome`."""

    task: Task
    lender: Lender
    slab: Slab
    head: Head
    made_s: float
    memory: Any = None  # set when it had to leave its slab

    def take(self) -> Any:
        memory = self.lender.lend(self)
        if isinstance(self.task.work, Part):
            raise Unsplit("a process does not read a batch in parts")
        try:
            batch = rebuild(memory, self.head)
            # What a shard leaves over is kept to the end of the epoch, and must not keep slabs from batches.
            return copy.deepcopy(batch) if isinstance(batch, Remainder) else batch
        except Exception as error:
            add_note(error, f"gluonloader: while rebuilding {self.task}")
            raise

    def discard(self) -> None:
        self.lender.discarded.append(self)
