"""The window: which batches are in flight, and in what order they are handed out. Pure logic, no processes."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Window"]

T = TypeVar("T")


class Window(Generic[T]):
    """At most `size` batches between the sampler and the user, counted from drawing to delivery.

    Args:
        size: most batches in flight, at least 1.
        in_order: hand out in the order of admission; otherwise as they complete.

    >>> window = Window(2, in_order=True)
    >>> window.admit(0); window.admit(1); window.has_room
    False
    >>> window.land(1, "b"); window.ready
    False
    >>> window.land(0, "a"); window.take(), window.take()
    ('a', 'b')
    """

    __slots__ = ("_awaited", "_in_order", "_landed", "size")

    def __init__(self, size: int, in_order: bool) -> None:
        self.size = size
        self._in_order = in_order
        self._awaited: dict[int, None] = {}  # admitted, not handed out; in order of admission
        self._landed: dict[int, T] = {}  # complete, not handed out; in order of completion

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be drawn."""
        return len(self._awaited) < self.size

    @property
    def empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._awaited

    @property
    def head(self) -> int:
        """The number of the batch that is waited for: the oldest that has not completed."""
        return next(number for number in self._awaited if number not in self._landed)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to hand out."""
        return bool(self._landed) and (not self._in_order or next(iter(self._awaited)) in self._landed)

    def admit(self, number: int) -> None:
        """Takes one more batch into the window."""
        self._awaited[number] = None

    def land(self, number: int, item: T) -> None:
        """A batch completed."""
        self._landed[number] = item

    def take(self) -> T:
        """Hands out the next batch; only when `ready`."""
        number = next(iter(self._awaited if self._in_order else self._landed))
        del self._awaited[number]
        return self._landed.pop(number)

    def empty_out(self) -> list[T]:
        """Breaks off: returns what has landed and forgets everything else; nothing more may be admitted."""
        landed = list(self._landed.values())
        self._landed, self._awaited, self.size = {}, {}, 0
        return landed

    def give_up(self, number: int) -> None:
        """Forgets a batch that will not come."""
        del self._awaited[number]
