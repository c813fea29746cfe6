"""Which consumer gets which batch, and when the memory of a batch is free again. No sockets, no threads.

    loader --add--> distribution --due--> consumer --acknowledge, release--> distribution --take_freed--> memory

An item is a batch, the error of a batch, or the end of an epoch. A consumer acknowledges an item just before its `next`
returns it, and releases it when nothing refers to its memory any more. An item is settled when nobody needs to get it
any more. The position of the server is the state of the loader after the last item up to which all are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..state import add_checksum, ranges_field, save_ranges, to_ranges
from .messages import Kind

# Items that a consumer of "all" has got and not acknowledged, so that it need not wait for the server.
_AHEAD: Final = 2
_READ_AHEAD: Final = 2  # batches that the server of "one" has read before a consumer asks


@dataclass(slots=True, eq=False)
class Item:
    """A batch, the error of a batch, or the end of an epoch.

    Attributes:
        number: of the item in the distribution; the distribution sets it.
        epoch, batch: which batch it is.
        content: what the consumer gets.
        state: of the loader after this item.
        holders: the consumers that have got it and not released it.
        settled: nobody needs to get it any more.
    """

    kind: Kind
    epoch: int
    batch: int = -1
    content: Any = None
    state: dict[str, Any] | None = None
    number: int = 0
    holders: set[int] = field(default_factory=set)
    settled: bool = False


@dataclass(slots=True, eq=False)
class Place:
    """Where a consumer is in the distribution.

    Attributes:
        next: the number of the item that it gets next; for "all".
        skips: it reads nothing of this epoch and of earlier ones; for "all".
        epoch: the epoch that it reads; None before its first item; for "one".
        sent: the items that it has got and not acknowledged, by number.
        held: the batches that it has got and not released, by number.
        received, skipped: how many items it has acknowledged, and how many it has missed since it was too slow.
        state: of the loader after the last item that it has acknowledged.
    """

    next: int = 0
    skips: int = -1
    epoch: int | None = None
    sent: dict[int, Item] = field(default_factory=dict)
    held: dict[int, Item] = field(default_factory=dict)
    received: int = 0
    skipped: int = 0
    state: dict[str, Any] | None = None

    @property
    def kept(self) -> int:
        """How many batches it has received and still refers to."""
        return sum(number not in self.sent for number in self.held)


@dataclass(frozen=True, slots=True)
class Due:
    """An item that a consumer gets now."""

    consumer: int
    item: Item


class Distribution(Protocol):
    """The items of a server.

    Attributes:
        places: where the consumers are, by the number of the consumer.
        state: the position; None before the first item is settled.
    """

    places: dict[int, Place]

    @property
    def state(self) -> dict[str, Any] | None: ...

    def attach(self, consumer: int) -> None: ...

    def detach(self, consumer: int) -> None:
        """The consumer has left or died: what it has not acknowledged counts as not received."""

    def ask(self, consumer: int) -> None:
        """The consumer waits for an item."""

    def know(self, epoch: int, batches: range) -> None:
        """A consumer has received batches from an earlier server."""

    def skip(self, consumer: int, epoch: int) -> None:
        """The consumer leaves an epoch."""

    def acknowledge(self, consumer: int, number: int) -> None: ...

    def release(self, consumer: int, number: int) -> None: ...

    def again(self, consumer: int) -> list[Item]:
        """The items that the consumer has not acknowledged, in their order."""

    def wants(self) -> bool:
        """Whether the loader should make another item."""

    def add(self, item: Item) -> None: ...

    def due(self) -> Iterator[Due]:
        """Yields which consumer gets which item now, and notes that it has got it."""

    def waits_for(self) -> list[int]:
        """The consumers for which the others wait."""

    def take_freed(self) -> list[Item]:
        """The items whose memory nobody needs, since the last call."""


class _Common:
    """What both kinds of distributions do in the same way.

    Args:
        state: of the loader before the first item; None if it cannot be saved.
    """

    def __init__(self, state: dict[str, Any] | None) -> None:
        self.places: dict[int, Place] = {}
        self._items: deque[Item] = deque()  # in the order of reading, from the first one that is not settled
        self._count = 0  # items so far
        self._state = state
        self._freed: list[Item] = []

    def again(self, consumer: int) -> list[Item]:
        return [item for _, item in sorted(self.places[consumer].sent.items())]

    def release(self, consumer: int, number: int) -> None:
        item = self.places[consumer].held.pop(number, None)
        if item is not None:
            self._drop(item, consumer)

    def take_freed(self) -> list[Item]:
        freed, self._freed = self._freed, []
        return freed

    def _number(self, item: Item) -> Item:
        item.number, self._count = self._count, self._count + 1
        return item

    def _give(self, consumer: int, item: Item) -> Due:
        place = self.places[consumer]
        place.sent[item.number] = item
        if item.kind is Kind.BATCH:
            place.held[item.number] = item
            item.holders.add(consumer)
        return Due(consumer, item)

    def _accept(self, consumer: int, number: int) -> Item | None:
        """Notes that a consumer has received an item; None if it has not got it, or has acknowledged it before."""
        place = self.places[consumer]
        item = place.sent.pop(number, None)
        if item is not None:
            place.received += item.kind is Kind.BATCH
            place.state = item.state or place.state
        return item

    def _drop(self, item: Item, consumer: int) -> None:
        item.holders.discard(consumer)
        self._free_if_unused(item)

    def _free_if_unused(self, item: Item) -> None:
        if item.settled and not item.holders and item.kind is Kind.BATCH:
            self._freed.append(item)

    def _settle(self, item: Item) -> None:
        item.settled = True
        self._free_if_unused(item)

    def _forget(self, consumer: int) -> list[Item]:
        """Removes a consumer; returns what it has not acknowledged, in its order."""
        unknown = self.again(consumer)
        place = self.places.pop(consumer)
        for item in place.held.values():
            self._drop(item, consumer)
        return unknown


class ForAll(_Common):
    """Each consumer gets each item, from the oldest one that is not settled when it attaches.

    Args:
        window: how many items are not settled at most.
        skips: a consumer that is slow misses the oldest items; otherwise the others wait for it.
    """

    def __init__(self, window: int, skips: bool, state: dict[str, Any] | None = None) -> None:
        super().__init__(state)
        self._window, self._skips = window, skips

    @property
    def state(self) -> dict[str, Any] | None:
        return self._state

    def attach(self, consumer: int) -> None:
        self.places[consumer] = Place(next=self._items[0].number if self._items else self._count)

    def detach(self, consumer: int) -> None:
        self._forget(consumer)
        self._settle_oldest()

    def know(self, epoch: int, batches: range) -> None:
        """Does nothing: this consumer discards them when they come again."""

    def ask(self, consumer: int) -> None:
        """Does nothing: items are sent ahead."""

    def skip(self, consumer: int, epoch: int) -> None:
        place = self.places[consumer]
        place.skips = max(place.skips, epoch)
        for item in self.again(consumer):
            if item.epoch <= epoch:
                del place.sent[item.number]
                self.release(consumer, item.number)
        self._settle_oldest()

    def acknowledge(self, consumer: int, number: int) -> None:
        self._accept(consumer, number)
        self._settle_oldest()

    def wants(self) -> bool:
        if not self.places:
            return False
        return len(self._items) < self._window or (self._skips and any(map(self._is_idle, self.places.values())))

    def _is_idle(self, place: Place) -> bool:
        return place.next == self._count and not place.sent

    def add(self, item: Item) -> None:
        self._items.append(self._number(item))
        if len(self._items) > self._window and self._skips:
            oldest = self._items.popleft()
            for place in self.places.values():
                if place.next <= oldest.number:
                    place.next = oldest.number + 1
                    place.skipped += oldest.kind is Kind.BATCH
            self._state = oldest.state or self._state
            self._settle(oldest)

    def due(self) -> Iterator[Due]:
        for consumer, place in self.places.items():
            while place.next < self._count and len(place.sent) < _AHEAD:
                item = self._items[place.next - self._items[0].number]
                place.next += 1
                if item.epoch > place.skips:
                    yield self._give(consumer, item)
        self._settle_oldest()

    def waits_for(self) -> list[int]:
        if self._skips or len(self._items) < self._window:
            return []
        oldest = self._items[0].number
        slow = [number for number, place in self.places.items() if place.next <= oldest or oldest in place.sent]
        return slow if len(slow) < len(self.places) else []

    def _settle_oldest(self) -> None:
        while self._items and self.places:
            oldest = self._items[0]
            if any(place.next <= oldest.number or oldest.number in place.sent for place in self.places.values()):
                return
            self._items.popleft()
            self._state = oldest.state or self._state
            self._settle(oldest)


class ForOne(_Common):
    """Each item goes to one consumer: the one that asks first. The end of an epoch goes to all."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        super().__init__(state)
        self._queue: deque[Item] = deque()  # items that nobody has got
        self._epoch: int | None = None  # that of the last item
        self._ended: int | None = None  # the epoch that was read to its end; None while one is being read
        # The batches that consumers have received from an earlier server, by epoch.
        self._received: dict[int, list[range]] = {}
        self._asking: deque[int] = deque()

    @property
    def state(self) -> dict[str, Any] | None:
        """The position, with the later batches that were received already."""
        state = self._state
        if state is None or "ahead" not in state:
            return state
        received = [item for item in self._items if item.settled and item.kind is Kind.BATCH]
        ahead = {item.batch for item in received if item.epoch == state["epoch"]}
        if not ahead:
            return state
        ahead.update(batch for batches in ranges_field(state, "ahead") for batch in batches)
        return add_checksum({**state, "ahead": save_ranges(to_ranges(sorted(ahead)))})

    def know(self, epoch: int, batches: range) -> None:
        """A consumer has received batches from an earlier server, which nobody needs to get again."""
        self._received.setdefault(epoch, []).append(batches)
        known = [item for item in self._queue if item.epoch == epoch and item.batch in batches]
        for item in known:
            self._queue.remove(item)
            self._settle(item)
        self._settle_oldest()

    def attach(self, consumer: int) -> None:
        self.places[consumer] = Place(epoch=self._epoch if self._ended is None else self._ended + 1)

    def detach(self, consumer: int) -> None:
        if consumer in self._asking:
            self._asking.remove(consumer)
        lost = [item for item in self._forget(consumer) if item.kind is not Kind.END]
        self._queue.extendleft(reversed(lost))

    def ask(self, consumer: int) -> None:
        if consumer not in self._asking:
            self._asking.append(consumer)

    def skip(self, consumer: int, epoch: int) -> None:
        """Does nothing: the batches that a consumer leaves go to the others."""

    def acknowledge(self, consumer: int, number: int) -> None:
        item = self._accept(consumer, number)
        if item is not None and item.kind is not Kind.END:
            self._settle(item)
            self._settle_oldest()

    def wants(self) -> bool:
        if not self.places or len(self._queue) >= _READ_AHEAD:
            return False
        if self._ended is None:
            return True
        # A consumer may still die and leave a batch of the epoch that has ended.
        return not self._items and any(self.places[number].epoch == self._ended + 1 for number in self._asking)

    def add(self, item: Item) -> None:
        self._items.append(self._number(item))
        self._epoch = item.epoch
        self._ended = item.epoch if item.kind is Kind.END else None
        if item.kind is Kind.END:
            for place in self.places.values():
                place.epoch = item.epoch if place.epoch is None else place.epoch  # it gets this end
        known = item.kind is Kind.BATCH and any(item.batch in some for some in self._received.get(item.epoch, ()))
        if item.kind is Kind.END or known:
            self._settle(item)
            self._settle_oldest()
        else:
            self._queue.append(item)

    def due(self) -> Iterator[Due]:
        for _ in range(len(self._asking)):
            consumer = self._asking.popleft()
            item = self._item_for(self.places[consumer])
            if item is None:
                self._asking.append(consumer)
            else:
                yield self._give(consumer, item)

    def _item_for(self, place: Place) -> Item | None:
        if self._epoch is None:
            return None
        has_ended = self._ended == place.epoch and not self._items
        if place.epoch is not None and (place.epoch < self._epoch or has_ended):
            end = Item(Kind.END, place.epoch)
            place.epoch += 1
            return self._number(end)
        if not self._queue:
            return None
        place.epoch = self._queue[0].epoch
        return self._queue.popleft()

    def waits_for(self) -> list[int]:
        """The consumers that have batches of an epoch for whose end others wait."""
        if self._ended is None or not self._asking:
            return []
        return [number for number, place in self.places.items() if place.sent and number not in self._asking]

    def _settle_oldest(self) -> None:
        while self._items and self._items[0].settled:
            self._state = self._items.popleft().state or self._state
