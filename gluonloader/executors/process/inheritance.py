"""What workers inherit under spawn and forkserver, because it cannot be in the pickle of the job.

    pickle of the job     a pipe, a lock, a socket, ... --> the number of a descriptor in `Inheritance.objects`
                          a tensor in shared memory     --> its own number there
    start of a worker     `multiprocessing` pickles the objects as a part of the process, and passes their descriptors
    the worker            `inherited` returns the object with that number

So the job is pickled once, and a worker that replaces a dead one still gets all objects: also if the program has closed
its end of a pipe meanwhile, since the objects are duplicates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, process
from multiprocessing.connection import Connection
from typing import Any, cast

from ...forks import no_fork
from ...messages import message
from ...wire.ends import close_end, track_end


@message(frozen=True, slots=True)
class InheritedDescriptor:
    """Stands for a descriptor in the pickle of a job."""

    number: int

    def detach(self) -> int:
        """Called by `multiprocessing` in the worker; returns a new descriptor."""
        connection: Connection = inherited(self.number)
        return os.dup(connection.fileno())


class Inheritance:
    """What the workers of one executor inherit.

    `multiprocessing` takes it for the process that starts while the job is pickled, and calls its methods.

    Attributes:
        objects: each process that starts gets them as its attribute `inherited`.
    """

    DupFd = InheritedDescriptor

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def duplicate_for_child(self, descriptor: int) -> int:
        """Keeps a duplicate of a descriptor; returns its number."""
        with no_fork:
            # A Connection can be pickled for the worker, whatever its descriptor is.
            return self.keep(track_end(Connection(os.dup(descriptor))))

    def keep(self, value: Any) -> int:
        """Keeps an object; returns its number."""
        self.objects.append(value)
        return len(self.objects) - 1

    @contextmanager
    def pickling(self) -> Iterator[None]:
        """Within the `with` block, what this thread pickles is for the workers."""
        before, stand_in = context.get_spawning_popen(), cast("Any", self)
        context.set_spawning_popen(stand_in)
        try:
            yield
        finally:
            context.set_spawning_popen(before)

    def close(self) -> None:
        for value in self.objects:
            if isinstance(value, Connection):
                close_end(value)
        self.objects.clear()


def inherited(number: int) -> Any:
    """Called in the worker: the object with that number."""
    worker: Any = process.current_process()
    return worker.inherited[number]
