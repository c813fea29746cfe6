"""`InFlight`: the batches of one epoch that were drawn and are not settled.

plan --add--> InFlight --settle--> epoch;  the window, the position and the count of errors only ask
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from .task import Task


class InFlight(dict[int, Task]):
    """The tasks of these batches, by number, in the order in which they were drawn.

    Each change is one operation of a dict; see NOTE [interrupts] in executors/base.py. Other threads may ask meanwhile.
    It is a dict itself, and not an object that has one, because `len` and `in` are needed several times for each batch.

    >>> in_flight = InFlight(Task(0, number, 0, [number]) for number in range(3))
    >>> in_flight.settle(in_flight.tasks[1]); in_flight.numbers, 1 in in_flight
    ([0, 2], False)
    """

    __slots__ = ()

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        super().__init__((task.batch, task) for task in tasks)

    @property
    def tasks(self) -> list[Task]:
        return list(self.values())

    @property
    def numbers(self) -> list[int]:
        """The numbers of the batches, without those of leftovers that are read again, which are negative."""
        return [number for number in list(self) if number >= 0]

    def has(self, task: Task) -> bool:
        """Whether this very task is in flight. If its batch was drawn again, that is another task."""
        return self.get(task.batch) is task

    def missing(self, arrived: Container[int]) -> list[Task]:
        """The tasks whose numbers are not in `arrived`."""
        return [task for number, task in list(self.items()) if number not in arrived]

    def next_missing(self, arrived: Container[int]) -> Task | None:
        """The first of them; None if there is none."""
        for number, task in list(self.items()):
            if number not in arrived:
                return task
        return None

    def add(self, task: Task) -> None:
        self[task.batch] = task

    def settle(self, task: Task) -> None:
        """Removes the task of a batch that was delivered, has failed, or turned out to be empty."""
        del self[task.batch]

    def renew(self) -> None:
        """Replaces each task by an equal one, so that outcomes of the old ones are not wanted any more."""
        for task in self.tasks:
            self[task.batch] = replace(task)
