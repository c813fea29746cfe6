"""The window: the batches in flight, and the order in which they are delivered. Pure logic, no processes."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Window(Generic[T]):
    """At most `size` batches that are drawn from the sampler and not delivered.

    Args:
        size: most batches in flight, at least 1.
        in_order: deliver batches in the order in which they were added; otherwise in the order in which they complete.

    >>> window = Window(2, in_order=True)
    >>> window.add(0); window.add(1); window.has_room
    False
    >>> window.complete(1, "b"); window.ready
    False
    >>> window.complete(0, "a"); window.deliver(), window.deliver()
    ('a', 'b')
    """

    __slots__ = ("_completed", "_in_flight", "_in_order", "size")

    def __init__(self, size: int, in_order: bool) -> None:
        self.size = size
        self._in_order = in_order
        self._in_flight: dict[int, None] = {}  # in the order in which they were added
        self._completed: dict[int, T] = {}  # those of them that have completed, in the order of completion

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be added."""
        return len(self._in_flight) < self.size

    @property
    def empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._in_flight

    @property
    def oldest(self) -> int:
        """The number of the oldest batch that has not completed."""
        return next(number for number in self._in_flight if number not in self._completed)

    @property
    def ready(self) -> bool:
        """Whether `deliver` has a batch to return."""
        return bool(self._completed) and (not self._in_order or next(iter(self._in_flight)) in self._completed)

    def add(self, number: int) -> None:
        """Adds a batch; only if `has_room`."""
        self._in_flight[number] = None

    def complete(self, number: int, item: T) -> None:
        """Stores what became of a batch."""
        self._completed[number] = item

    def deliver(self) -> T:
        """Removes and returns the next batch; only if `ready`."""
        number = next(iter(self._in_flight if self._in_order else self._completed))
        del self._in_flight[number]
        return self._completed.pop(number)

    def drop(self, number: int) -> None:
        """Removes a batch that will not complete."""
        del self._in_flight[number]

    def clear(self) -> list[T]:
        """Empties the window for good and returns what has completed; `has_room` stays False."""
        completed = list(self._completed.values())
        self._completed, self._in_flight, self.size = {}, {}, 0
        return completed
