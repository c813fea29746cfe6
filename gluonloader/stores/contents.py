"""Which blocks a cache contains, and which of them go when another one needs their room.

Each block has a fixed random number, its priority. Of the blocks that nobody needs now, the one with the lowest number
goes first. So the blocks with high numbers stay for ever, as many as there is room for, and the others pass through.
If each epoch reads each block once, no other rule has more hits than the share of the data that fits (`stores.md` tells
the measurements); one that removes what was used longest ago has far fewer. The hits are spread over the whole epoch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sized
from typing import Final

from .objects import Block

_FEW: Final = 1000


def is_worth_pruning(found: Sized, needed: int) -> bool:
    """Whether to remove what is not needed: seldom, so that it takes no time for each new item, of perhaps millions."""
    return len(found) > 2 * needed + _FEW


class Contents:
    """The blocks in the folder, with the space that they occupy.

    Args:
        limit: of the space, in bytes; may be lowered, if the disk has less room.

    Attributes:
        used: the space of all blocks, also of those for which room was made but that are not there yet.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._spaces: dict[Block, int] = {}
        self._known: set[str] = set()  # the objects that somebody reads
        self._others: dict[str, list[Block]] = {}  # blocks of other objects, perhaps removed since
        self._order: list[tuple[bool, int, str, int, int]] = []  # (whether known, priority, then the block)

    def __contains__(self, block: Block) -> bool:
        return block in self._spaces

    def __len__(self) -> int:
        return len(self._spaces)

    def know(self, key: str) -> None:
        """Somebody reads this object; blocks of objects that nobody reads go first."""
        if key in self._known:
            return
        own = {block for block in self._others.pop(key, ()) if block in self._spaces}  # some were added twice
        for block in own:
            self._unlist(block)
        self._known.add(key)
        for block in own:
            insort(self._order, self._entry(block))

    def forget_others(self, keys: Collection[str]) -> None:
        """Nobody reads other objects any more; those that have no blocks are forgotten when they are many."""
        if is_worth_pruning(self._known, len(self._spaces) + len(keys)):
            self._known &= {*keys, *(block.key for block in self._spaces)}

    def add(self, block: Block, space: int) -> None:
        self._note(block, space)
        insort(self._order, self._entry(block))

    def add_all(self, spaces: Mapping[Block, int]) -> None:
        """Adds very many blocks at once."""
        for block, space in spaces.items():
            self._note(block, space)
        self._order = sorted(map(self._entry, self._spaces))

    def _note(self, block: Block, space: int) -> None:
        self._spaces[block] = space
        self.used += space
        if block.key not in self._known:
            self._others.setdefault(block.key, []).append(block)

    def remove(self, block: Block) -> None:
        self._unlist(block)
        self.used -= self._spaces.pop(block)

    def has_room(self, space: int) -> bool:
        return self.used + space <= self.limit

    def unneeded(self, needed: Collection[Block]) -> Iterator[Block]:
        """The blocks that may go, except for those that are needed; the first ones first.

        After one of them was removed, call this again.
        """
        for _, _, key, start, stop in self._order:
            block = Block(key, start, stop)
            if block not in needed:
                yield block

    def _entry(self, block: Block) -> tuple[bool, int, str, int, int]:
        return block.key in self._known, block.priority, block.key, block.start, block.stop

    def _unlist(self, block: Block) -> None:
        del self._order[bisect_left(self._order, self._entry(block))]
