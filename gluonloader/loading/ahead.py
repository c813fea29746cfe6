"""What comes next, over the end of the epoch; caches are told of it, so that blocks are there when they are needed.

batch sampler --copies--> tasks_ahead --> Ahead --blocks of the next batches--> the fetcher of each cache
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, zip_longest
from typing import Any, Final

import numpy as np

from ..declared import needed_blocks
from ..indices import as_list, is_int_array
from ..position import indices as position
from ..position.progress import Start
from ..stores.cache import Needed, NodeCache, tell
from ..stores.folder import space_of
from ..stores.objects import Block, Remote
from ..units import size
from ..work.task import Task
from .plan import IndexPlan

_MORE: Final = 8  # blocks that are fetched ahead, besides twice as many as the batches in flight need
_FOR_A_REQUEST: Final = 4  # blocks ahead for each request that may run at a time, so that a slow one stops none
_FEWEST_BATCHES: Final = 8  # that are looked at together
_MOST_STEPS: Final = 64


def tasks_ahead(copies: Sequence[Any], state: Any, seed: int) -> Iterator[list[Task | None]]:
    """Yields the next task of each of these batch samplers, again and again, until two epochs have none.

    Args:
        copies: of the batch sampler, one for each rank; they are changed.
        state: of the loader, where the tasks start.
    """
    epoch: int = state["epoch"]
    starts = [position.load(batches, state) for batches in copies]
    while True:
        plans = [IndexPlan(batches, epoch, seed, start) for batches, start in zip(copies, starts, strict=True)]
        any_tasks = False
        for tasks in zip_longest(*map(_tasks, plans)):
            any_tasks = True
            yield list(tasks)
        if not any_tasks and epoch > state["epoch"]:
            return
        for plan in plans:
            plan.carry_over()
        epoch, starts = epoch + 1, [Start()] * len(copies)


def _tasks(plan: IndexPlan) -> Iterator[Task]:
    while True:
        try:
            yield plan.next()
        except StopIteration:
            return


class Ahead:
    """The blocks that the next batches of an epoch need, as its caches are told of them.

    Args:
        tasks: of these batches, the next one first.
        in_flight: how many of them are made at a time.
        loader: whose batches these are; what it needed before is replaced.

    Raises:
        ValueError: they need more blocks than a cache has room for.
    """

    def __init__(self, tasks: Iterator[Task], dataset: Any, in_flight: int, loader: object) -> None:
        self._tasks, self._dataset, self._loader = tasks, dataset, loader
        self._step = max(in_flight, _FEWEST_BATCHES)  # batches that are looked at together
        self._delivered = 0  # batches of the first step
        self._steps: deque[list[Needed]] = deque()
        self._counts: dict[NodeCache, Counter[Block]] = {}  # in how many steps a block is needed
        self._spaces = Counter[NodeCache]()  # of all these blocks, in bytes
        self._told: dict[NodeCache, list[Block]] = {}
        self._look()
        first = self._spaces.copy()
        self._look()  # batches in flight may belong to two steps
        self._least = self._spaces.copy()
        self._most = {cache: _window(cache, first[cache], both, self._step) for cache, both in self._spaces.items()}
        self._fill()

    def move(self) -> None:
        """A batch was delivered."""
        self._delivered += 1
        if self._delivered == self._step:
            self._delivered = 0
            self._drop()
            self._fill()

    def _fill(self) -> None:
        while len(self._steps) < _MOST_STEPS and self._has_room and self._look():
            pass
        for cache, counts in self._counts.items():
            blocks = list(counts)
            if blocks != self._told.get(cache):
                self._told[cache] = blocks
                tell(cache, self._loader, blocks, self._remotes(cache))

    def _remotes(self, cache: NodeCache) -> dict[str, Remote]:
        """The objects of these blocks, by their keys."""
        needed = [one for step in self._steps for one in step if one.cache is cache]
        return {key: remote for one in needed for key, remote in one.remotes.items()}

    @property
    def _has_room(self) -> bool:
        return any(self._spaces[cache] < most and self._are_few(cache) for cache, most in self._most.items())

    def _are_few(self, cache: NodeCache) -> bool:
        """Whether more blocks are needed, so that requests do not wait. Small files could be too many to tell often."""
        few = len(self._counts[cache]) < _FOR_A_REQUEST * cache.options.requests
        return few or self._spaces[cache] < self._least[cache]

    def _look(self) -> bool:
        """Looks at the next batches; returns whether there are any."""
        indices: list[Any] = [task.indices for task in islice(self._tasks, self._step)]
        if not indices:
            return False
        arrays = all(map(is_int_array, indices))
        keys: Any = np.concatenate(indices) if arrays else [key for some in indices for key in as_list(some)]
        self._steps.append(needed_blocks(self._dataset, keys))
        for needed in self._steps[-1]:
            counts = self._counts.setdefault(needed.cache, Counter())
            for block in needed.blocks:
                if block not in counts:
                    self._spaces[needed.cache] += space_of(block.nbytes)
                counts[block] += 1
        return True

    def _drop(self) -> None:
        for needed in self._steps.popleft() if self._steps else ():
            counts = self._counts[needed.cache]
            for block in needed.blocks:
                counts[block] -= 1
                if not counts[block]:
                    del counts[block]
                    self._spaces[needed.cache] -= space_of(block.nbytes)


class Standby:
    """Takes the place of an `Ahead` as long as caches have all blocks of an epoch, so that none need to be told.

    Args:
        has_fetched: whether a cache has fetched something, so that it may have removed other blocks.
        look_ahead: makes the `Ahead` then.
    """

    def __init__(self, has_fetched: Callable[[], bool], look_ahead: Callable[[], Ahead | Standby | None]) -> None:
        self._has_fetched, self._look_ahead = has_fetched, look_ahead
        self._ahead: Ahead | Standby | None = None
        self._delivered = 0

    def move(self) -> None:
        """A batch was delivered."""
        if self._ahead is not None:
            self._ahead.move()
            return
        self._delivered += 1
        if self._delivered % _FEWEST_BATCHES == 0 and self._has_fetched():
            with suppress(ValueError):  # the next epoch raises it at its start
                self._ahead = self._look_ahead()


def _window(cache: NodeCache, first: int, both: int, batches: int) -> int:
    """How many bytes of a cache are for the next batches.

    Args:
        first, both: how many bytes the first step needs, of so many `batches`, and the first two steps.
    """
    limit, block = cache.options.limit, space_of(cache.options.block)
    if first > limit - block:
        what = f"the next {batches} batches need {size(first)}, and its limit is {size(limit)}"
        least = f"pass at least {size(2 * first)} as limit"
        right = f"{least}, a smaller batch_size, or a smaller buffer to BlockShuffleSampler"
        raise ValueError(f"cache={cache!r}: {what}; {right}")
    return min(max(2 * first + _MORE * block, both + block), max(limit // 2, min(both + block, limit)))
