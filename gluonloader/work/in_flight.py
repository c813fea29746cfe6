"""`InFlight`: the batches of one epoch that were drawn and are not settled.

plan --add--> InFlight --settle--> epoch;  the window, the position and the count of errors only ask
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from .task import Task


class InFlight:
    """The tasks of these batches, by number, in the order in which they were drawn.

    Each change is one operation of a dict; see NOTE [interrupts] in executors/base.py. Other threads may ask meanwhile.

    >>> in_flight = InFlight(Task(0, number, 0, [number]) for number in range(3))
    >>> in_flight.settle(in_flight.tasks[1]); in_flight.numbers, in_flight.first, 1 in in_flight
    ([0, 2], 0, False)
    """

    __slots__ = ("_tasks",)

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._tasks = {task.batch: task for task in tasks}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, number: object) -> bool:
        return number in self._tasks

    @property
    def tasks(self) -> list[Task]:
        return list(self._tasks.values())

    @property
    def numbers(self) -> list[int]:
        """The numbers of the batches, without those of leftovers that are read again, which are negative."""
        return [number for number in list(self._tasks) if number >= 0]

    @property
    def first(self) -> int | None:
        """The number that was drawn first; None if nothing is in flight."""
        return next(iter(self._tasks), None)

    def has(self, task: Task) -> bool:
        """Whether this very task is in flight. If its batch was drawn again, that is another task."""
        return self._tasks.get(task.batch) is task

    def missing(self, arrived: Container[int]) -> list[Task]:
        """The tasks whose numbers are not in `arrived`."""
        return [task for number, task in list(self._tasks.items()) if number not in arrived]

    def add(self, task: Task) -> None:
        self._tasks[task.batch] = task

    def settle(self, task: Task) -> None:
        """Removes the task of a batch that was delivered, has failed, or turned out to be empty."""
        del self._tasks[task.batch]

    def clear(self) -> None:
        """Removes all tasks: their batches will be drawn again."""
        self._tasks.clear()

    def renew(self) -> None:
        """Replaces each task by an equal one, so that outcomes of the old ones are not wanted any more."""
        for task in self.tasks:
            self._tasks[task.batch] = replace(task)
