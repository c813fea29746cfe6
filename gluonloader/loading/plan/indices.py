"""The plan of a map-style dataset: lists of indices from a batch sampler, and where that stands.

Three kinds of sampler, by how they are brought to a position:

    ours       what its pass depends on, as it was when the pass began; then the pass skips, without drawing
    stateful   has `state_dict` and `load_state_dict` of its own: asked before each draw, since draws are ahead
    any other  begins again and is drawn from, without loading
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import bad_argument, bad_state
from ...indices import Keys, is_int_array
from ...randomness import batch_seed
from ...sampler import (
    BatchPass,
    BatchSampler,
    ShardedSampler,
    as_keys,
    iterate,
    knows_epoch,
    load_saved_pass,
    refreshed,
    saved_pass,
    skip,
)
from ...state import field, has_state, int_field, ranges_field, to_json
from ...work.task import Task
from .base import Progress, Start

__all__ = ["IndexPlan"]


class IndexPlan:
    """One epoch of a batch sampler.

    Args:
        batch_sampler: any iterable of lists of indices; its next pass begins here.
        epoch, seed: of the loader.
        start: where; from `load` if a position was loaded, which has prepared the sampler.
    """

    def __init__(self, batch_sampler: Any, epoch: int, seed: int, start: Start) -> None:
        self.epoch, self.finished, self.outdated = epoch, False, False
        self.lock = threading.RLock()
        self._batch_sampler = batch_sampler
        self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
        self._seed = _seed_of_rank(seed, self.sampler)
        self._stateful = _stateful(batch_sampler)
        try:
            self._began: dict[str, Any] | TypeError = saved_pass(batch_sampler)
        except TypeError as error:
            self._began = error  # indices that JSON does not hold were carried over: no position, but batches
        self._batches: Iterator[Any] = iterate(batch_sampler)
        skip(self._batches, start.skip)
        self._first = start.number - start.skip
        self._progress = Progress(start.number, start.ahead)
        self._snapshots: dict[int, Any] = {}  # of a stateful sampler, before it gave the batch of this number

    def next(self) -> Task:
        while True:
            number = self._progress.upcoming
            if self._stateful is not None:
                self._snapshots[number] = _snapshot(self._stateful)
            indices = self._draw(number)
            if not self._progress.pass_over(number):
                break
        self._progress.plan(number)
        return Task(self.epoch, number, self._seed, indices)

    def _draw(self, number: int) -> Keys:
        if isinstance(self._batches, BatchPass):
            return self._batches.cut()
        return _keys_of(next(self._batches), number, self._batch_sampler)

    def deliver(self, task: Task, result: Any) -> Any:
        self._settle(task.batch)
        return result

    def fail(self, task: Task, error: BaseException) -> bool:
        self._settle(task.batch)
        return True

    def _settle(self, number: int) -> None:
        self._progress.settle(number)
        if self._snapshots:
            done = self._progress.next
            self._snapshots = {number: state for number, state in self._snapshots.items() if number >= done}

    def finish(self) -> None:
        if isinstance(self._batches, BatchPass) and not self.outdated:
            self._batches.commit()
        self.finished = True

    def state(self) -> dict[str, Any]:
        if isinstance(self._began, TypeError):
            raise self._began
        number, began = self._progress.next, refreshed(self._batch_sampler, self._began)
        fields = {**self._progress.state(), "skip": number - self._first, "sampler": began}
        if self._stateful is not None:
            drawn = number in self._snapshots
            fields["snapshot"] = self._snapshots[number] if drawn else _snapshot(self._stateful)
        return fields

    def rewind(self) -> None:
        number = self._progress.next
        if self._stateful is not None:
            self._stateful.load_state_dict(self.state()["snapshot"])
            _drop_carried(self._batch_sampler, number - self._first)
            self._batches = iterate(self._batch_sampler)
        elif hasattr(self._batches, "seek"):
            self._batches.seek(number - self._first)
        else:
            raise TypeError(
                f"a {type(self.sampler).__name__} cannot be put back to the last delivered batch; "
                "give it state_dict() and load_state_dict()"
            )
        self._progress, self._snapshots = self._progress.again(), {}

    @staticmethod
    def fresh_state(batch_sampler: Any) -> dict[str, Any]:
        """The position before the next epoch."""
        stateful = _stateful(batch_sampler)
        fields: dict[str, Any] = {"batch": 0, "ahead": [], "skip": 0, "sampler": saved_pass(batch_sampler)}
        return fields if stateful is None else {**fields, "snapshot": _snapshot(stateful)}

    @staticmethod
    def keep(batch_sampler: Any) -> Callable[[], None]:
        """Remembers where a sampler stands; the function that it returns puts it there."""
        carried = getattr(batch_sampler, "carried", None)
        if carried:
            batch_sampler.carried = []  # it need not be JSON
        state = IndexPlan.fresh_state(batch_sampler)
        if carried:
            batch_sampler.carried = carried

        def put_back() -> None:
            IndexPlan.load(batch_sampler, state)
            if carried:
                batch_sampler.carried = carried

        return put_back

    @staticmethod
    def load(batch_sampler: Any, state: Mapping[str, Any]) -> Start:
        """Prepares the sampler, and says where its next pass begins.

        Raises:
            ValueError: the state does not fit; nothing has changed.
        """
        number, had = int_field(state, "batch"), int_field(state, "skip")
        ahead, saved = ranges_field(state, "ahead"), field(state, "sampler")
        if had > number:
            raise bad_state("skip", had, f"has to be at most batch={number}")
        if ahead and ahead[0].start <= number:
            raise bad_state("ahead", state["ahead"], f"has to be beyond batch={number}")
        sampler = getattr(batch_sampler, "sampler", batch_sampler)
        if ahead and isinstance(sampler, ShardedSampler):
            _check_share(sampler, state)
        stateful = _stateful(batch_sampler)
        if stateful is not None:
            field(state, "snapshot")
        left = load_saved_pass(batch_sampler, saved, had)
        if state.get("epoch", 0) > 0 and not (knows_epoch(sampler) or hasattr(sampler, "set_epoch")):
            warnings.warn(
                f"a {type(sampler).__name__} does not say in which epoch it is, so it is begun anew: right if it gives "
                "one order in all epochs; else give it state_dict() and load_state_dict(), or use a sampler of "
                "gluonloader",
                RuntimeWarning,
                stacklevel=5,
            )
        if stateful is not None:
            stateful.load_state_dict(state["snapshot"])
            _drop_carried(batch_sampler, had)
            left = 0
        return Start(number, left, tuple(ahead))


def _keys_of(indices: Any, number: int, batch_sampler: Any) -> Keys:
    """The keys that a batch sampler gave for a batch. An array is copied, since it may be used again for the next."""
    keys = as_keys(indices) if is_int_array(indices) else list(indices) if hasattr(indices, "__iter__") else []
    if not len(keys):
        right = f"it gave {indices!r} for batch {number}; let it give lists of indices, at least one in each"
        raise bad_argument("batch_sampler", batch_sampler, right)
    return keys


def _seed_of_rank(seed: int, sampler: Any) -> int:
    """Ranks that share one order must not share the random numbers of samples; rank 0 has the loader's seed."""
    rank = 0
    while sampler is not None and not rank:
        if isinstance(sampler, ShardedSampler):
            rank = sampler.index
        elif hasattr(sampler, "num_replicas") and isinstance(getattr(sampler, "rank", None), int):  # torch's
            rank = int(sampler.rank)
        sampler = getattr(sampler, "sampler", None)
    return batch_seed(seed, -rank) if rank else seed  # no epoch is negative


def _check_share(sampler: ShardedSampler, state: Mapping[str, Any]) -> None:
    """Batches that came out of order are known by their number in one share."""
    inner = state["sampler"]
    while isinstance(inner, Mapping) and inner.get("kind") != type(sampler).__name__:
        inner = inner.get("sampler")
    saved = (inner.get("num_shards"), inner.get("index")) if isinstance(inner, Mapping) else None
    if saved not in (None, (sampler.num_shards, sampler.index)):
        right = "batches of another share came out of order; load each share's own, or save with in_order=True"
        raise bad_state("ahead", state["ahead"], right)


def _stateful(batch_sampler: Any) -> Any:
    """What of a batch sampler keeps its own state: itself, or the sampler that it cuts; None if neither does."""
    for sampler in (batch_sampler, getattr(batch_sampler, "sampler", None)):
        if has_state(sampler):
            return sampler
    return None


def _snapshot(stateful: Any) -> Any:
    return to_json(type(stateful).__name__, stateful.state_dict())


def _drop_carried(batch_sampler: Any, batches: int) -> None:
    """What an epoch carried over was in its first batch."""
    if batches and isinstance(batch_sampler, BatchSampler):
        batch_sampler.carried = []
