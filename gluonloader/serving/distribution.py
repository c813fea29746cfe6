"""Which item a consumer gets next, and when the memory of a batch is free again. No sockets, no threads.

    loader --add--> distribution --due--> consumer --acknowledge, release--> distribution --take_freed--> memory

An item is a batch, the error of a batch, or the end of an epoch. A consumer acknowledges an item just before its `next`
returns it, and releases it when nothing refers to its memory any more. An item is settled when nobody needs to get it
any more. The position of the server is the state of the loader after the last item up to which all are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from .messages import Kind

_AHEAD: Final = 2  # items that a consumer has got and not acknowledged, so that it need not wait for the server


@dataclass(slots=True, eq=False)
class Item:
    """A batch, the error of a batch, or the end of an epoch.

    Attributes:
        number: of the item in the distribution; the distribution sets it.
        epoch, batch: which batch it is.
        content: what the consumer gets.
        state: of the loader after this item.
    """

    kind: Kind
    epoch: int
    batch: int = -1
    content: Any = None
    state: dict[str, Any] | None = None
    number: int = 0


@dataclass(slots=True, eq=False)
class Place:
    """Where a consumer is in the distribution.

    Attributes:
        next: the number of the item that it gets next.
        skips: it reads nothing of this epoch and of earlier ones.
        sent: the items that it has got and not acknowledged, by number.
        held: the batches that it has got and not released, by number.
        received, skipped: how many items it has acknowledged, and how many it has missed since it was too slow.
        state: of the loader after the last item that it has acknowledged.
    """

    next: int = 0
    skips: int = -1
    sent: dict[int, Item] = field(default_factory=dict)
    held: dict[int, Item] = field(default_factory=dict)
    received: int = 0
    skipped: int = 0
    state: dict[str, Any] | None = None

    @property
    def kept(self) -> int:
        """How many batches it has received and still refers to."""
        return sum(number not in self.sent for number in self.held)


class Distribution:
    """The items of a server. Each consumer gets each item, from the oldest one that is not settled when it attaches.

    Args:
        window: how many items are not settled at most.
        skips: a consumer that is slow misses the oldest items; otherwise the others wait for it.
        state: of the loader before the first item; None if it cannot be saved.

    Attributes:
        places: where the consumers are, by the number of the consumer.
        state: the position; None if it cannot be saved.
    """

    def __init__(self, window: int, skips: bool, state: dict[str, Any] | None = None) -> None:
        self.places: dict[int, Place] = {}
        self.state = state
        self._window, self._skips = window, skips
        self._items: deque[Item] = deque()  # in the order of reading, from the first one that is not settled
        self._count = 0  # items so far
        self._freed: list[Item] = []

    def attach(self, consumer: int) -> None:
        self.places[consumer] = Place(next=self._oldest)

    def detach(self, consumer: int) -> None:
        """The consumer has left or died."""
        for item in self.places.pop(consumer).held.values():
            self._free_if_unused(item)
        self._settle_oldest()

    def skip(self, consumer: int, epoch: int) -> None:
        """The consumer leaves an epoch."""
        place = self.places[consumer]
        place.skips = max(place.skips, epoch)
        for item in self.again(consumer):
            if item.epoch <= epoch:
                del place.sent[item.number]
                self.release(consumer, item.number)
        self._settle_oldest()

    def acknowledge(self, consumer: int, number: int) -> None:
        """The consumer has received an item; does nothing if it has acknowledged the item before."""
        place = self.places[consumer]
        item = place.sent.pop(number, None)
        if item is not None:
            place.received += item.kind is Kind.BATCH
            place.state = item.state or place.state
            self._settle_oldest()

    def release(self, consumer: int, number: int) -> None:
        """Nothing refers to the memory of an item any more."""
        item = self.places[consumer].held.pop(number, None)
        if item is not None:
            self._free_if_unused(item)

    def again(self, consumer: int) -> list[Item]:
        """The items that the consumer has not acknowledged, in their order."""
        return [item for _, item in sorted(self.places[consumer].sent.items())]

    def wants(self) -> bool:
        """Whether the loader should make another item."""
        if not self.places:
            return False
        return len(self._items) < self._window or (self._skips and any(map(self._is_idle, self.places.values())))

    def _is_idle(self, place: Place) -> bool:
        return place.next == self._count and not place.sent

    def add(self, item: Item) -> None:
        item.number, self._count = self._count, self._count + 1
        self._items.append(item)
        if len(self._items) > self._window and self._skips:
            oldest = self._items[0]
            for place in self.places.values():
                if place.next == oldest.number:
                    place.next += 1
                    place.skipped += oldest.kind is Kind.BATCH
            self._settle()

    def due(self) -> Iterator[tuple[int, Item]]:
        """Yields which consumer gets which item now, and notes that it has got it."""
        for consumer, place in self.places.items():
            while place.next < self._count and len(place.sent) < _AHEAD:
                item = self._items[place.next - self._oldest]
                place.next += 1
                if item.epoch > place.skips:
                    place.sent[item.number] = item
                    if item.kind is Kind.BATCH:
                        place.held[item.number] = item
                    yield consumer, item
        self._settle_oldest()

    def waits_for(self, full: bool = False) -> list[int]:
        """The consumers for which the others wait.

        Args:
            full: there is no memory for another item until one is settled.
        """
        if not self._items or not (full or (len(self._items) >= self._window and not self._skips)):
            return []
        slow = [number for number, place in self.places.items() if self._lacks_oldest(place)]
        return slow if len(slow) < len(self.places) else []

    def take_freed(self) -> list[Item]:
        """The items whose memory nobody needs, since the last call."""
        freed, self._freed = self._freed, []
        return freed

    def _lacks_oldest(self, place: Place) -> bool:
        """Whether a consumer needs the oldest item and has not acknowledged it."""
        return place.next <= self._oldest or self._oldest in place.sent

    def _settle_oldest(self) -> None:
        while self._items and self.places and not any(map(self._lacks_oldest, self.places.values())):
            self._settle()

    def _settle(self) -> None:
        """Settles the oldest item."""
        item = self._items.popleft()
        self.state = item.state or self.state
        self._free_if_unused(item)

    @property
    def _oldest(self) -> int:
        """The number of the oldest item that is not settled, or of the next one that is read."""
        return self._count - len(self._items)

    def _free_if_unused(self, item: Item) -> None:
        is_held = any(item.number in place.held for place in self.places.values())
        if item.number < self._oldest and not is_held and item.kind is Kind.BATCH:
            self._freed.append(item)
