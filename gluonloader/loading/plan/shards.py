"""The plan of an iterable dataset: chunks of its shards in turn, then what the shards left over.

    chunk 0 of shard 0, chunk 0 of shard 1, ... chunk 1 of shard 0, ...      worker = shard % workers
        a full chunk is a batch;  a short one ends its shard, and its samples are left over
    when all shards have ended: leftovers in the order of shards, cut into batches; only the very last can be short

How long a shard is shows only when it ends, so chunks are planned past its end; they come back empty, and are no
batches. Chunk t of shard s has number t * num_shards + s, so that seeds and positions do not depend on timing.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...checks import LastBatch
from ...errors import BatchTimeout, WorkerDied, bad_state
from ...state import field, int_field, ranges_field
from ...work.maker import ShardBatch
from ...work.streams import Chunk, Hint
from ...work.task import Samples, Task
from .base import NOTHING, Progress

__all__ = ["Leftover", "ShardPlan", "Shards", "only_sample"]


@dataclass(frozen=True, slots=True)
class Shards:
    """How an iterable dataset is cut up.

    Attributes:
        num_shards: number of shards; the order of batches depends on it, and not on the number of workers.
        size: samples in a batch.
        last_batch: what becomes of a last batch that is too short.
        buffer: samples that are shuffled among each other; 0 for none.
        workers: number of workers.
    """

    num_shards: int
    size: int
    last_batch: LastBatch
    buffer: int
    workers: int

    def batches(self, samples: int) -> int:
        """Number of batches of an epoch of so many samples."""
        return -(-samples // self.size) if self.last_batch == "keep" else samples // self.size


@dataclass(slots=True)
class Leftover:
    """The last samples of a shard, from `start` to `stop` of a chunk; None while they have to be read again."""

    chunk: Chunk
    start: int
    stop: int
    samples: list[Any] | None

    def state(self) -> dict[str, Any]:
        chunk, hint = self.chunk, self.chunk.hint
        where = {"epoch": chunk.epoch, "shard": chunk.shard, "chunk": chunk.number, "hint": _hint_state(hint)}
        return {**where, "start": self.start, "stop": self.stop}


class ShardPlan:
    """One epoch of an iterable dataset.

    Args:
        shards: how it is cut up.
        epoch, seed: of the loader.
        iteration: a number that no other living iterator of the loader has.
        carried: what the last epoch left over (rollover).
        state: a position, from `check`; None for the epoch's start.
    """

    def __init__(
        self,
        shards: Shards,
        epoch: int,
        seed: int,
        iteration: int,
        carried: list[Leftover],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.epoch, self.finished, self.outdated = epoch, False, False
        self.lock = threading.RLock()
        self._shards, self._seed, self._iteration = shards, seed, iteration
        self._carried = carried
        self._first: int | None = 0
        self.carry: list[Leftover] = []  # for the next epoch, once this one is finished
        self._begin(state)

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        self._ended: dict[int, int] = {}  # shard -> number of its last chunk
        self._hints: dict[int, Hint | None] = {}
        self._leftovers = list(self._carried)
        self._progress = Progress(0)
        if state is not None:
            self._ended = dict(state["ended"])
            self._hints = {shard: _load_hint(hint) for shard, hint in enumerate(state["hints"])}
            self._leftovers = [self._load_leftover(saved) for saved in state["leftovers"]]
            self._progress = Progress(state["batch"], ranges_field(state, "ahead"))
        self._in_leftovers = self._all_ended and self._progress.upcoming >= self._first_of_leftovers
        self._missing = deque(leftover for leftover in self._leftovers if leftover.samples is None)
        self._fetching: dict[int, Leftover] = {}
        self._pool: list[Any] | None = None

    def next(self) -> Task | None:
        if self._missing:
            leftover = self._missing.popleft()
            number = -1 - len(self._fetching)  # no batch of its own
            self._fetching[number] = leftover
            return self._task(number, leftover.chunk, leftover.chunk.shard)
        while not self._all_ended or self._progress.upcoming < self._first_of_leftovers:
            number = self._progress.upcoming
            chunk, shard = divmod(number, self._shards.num_shards)
            if self._is_beyond(number):
                self._progress.upcoming += 1
            elif not self._progress.pass_over(number):
                self._progress.plan(number)
                return self._task(number, self._chunk(self.epoch, shard, chunk, self._hints.get(shard)), shard)
        if not self._in_leftovers:
            if self._progress.awaited:
                return None  # chunks beyond the ends, whose numbers come again
            self._progress, self._in_leftovers = Progress(self._first_of_leftovers), True
        return self._next_of_leftovers()

    @property
    def _all_ended(self) -> bool:
        return len(self._ended) == self._shards.num_shards

    def _is_beyond(self, number: int) -> bool:
        """Whether the chunk of this number is known to be empty."""
        chunk, shard = divmod(number, self._shards.num_shards)
        return chunk > self._ended.get(shard, chunk)

    def _next_of_leftovers(self) -> Task | None:
        if any(leftover.samples is None for leftover in self._leftovers):
            return None
        first, size = self._first_of_leftovers, self._shards.size
        pool = self._all_leftovers()
        while True:
            number = self._progress.upcoming
            samples = pool[(number - first) * size : (number - first + 1) * size]
            if not samples or (len(samples) < size and self._shards.last_batch != "keep"):
                raise StopIteration
            if not self._progress.pass_over(number):
                self._progress.plan(number)
                return self._task(number, Samples(samples), number - first)

    @property
    def _first_of_leftovers(self) -> int:
        """The number of the first batch of leftovers: it depends on where shards end, not on when that was learnt."""
        return (max(self._ended.values(), default=0) + 1) * self._shards.num_shards

    def _all_leftovers(self) -> list[Any]:
        if self._pool is None:
            carried = len(self._leftovers) - len([left for left in self._leftovers if left.chunk.epoch == self.epoch])
            own = sorted(self._leftovers[carried:], key=lambda leftover: leftover.chunk.shard)
            self._leftovers[carried:] = own
            self._pool = [sample for leftover in self._leftovers for sample in leftover.samples or ()]
        return self._pool

    def _task(self, number: int, work: Chunk | Samples, shard: int) -> Task:
        return Task(self.epoch, number, self._seed, work, shard % max(self._shards.workers, 1))

    def _chunk(self, epoch: int, shard: int, number: int, hint: Hint | None) -> Chunk:
        shards = self._shards
        return Chunk(
            shard, shards.num_shards, number, shards.size, epoch, self._seed, self._iteration, shards.buffer, hint
        )

    def deliver(self, task: Task, result: Any) -> Any:
        leftover = self._fetching.get(task.batch)
        if leftover is not None:
            leftover.samples = result.samples[leftover.start : leftover.stop]
            return NOTHING
        chunk = task.work
        if not isinstance(chunk, Chunk):
            self._progress.settle(task.batch)
            return result
        self._check_first(chunk, result.first)
        if isinstance(result, ShardBatch):
            self._hints[chunk.shard] = result.hint
            self._progress.settle(task.batch)
            return result.batch
        if result.samples:
            kept = self._chunk(self.epoch, chunk.shard, chunk.number, self._hints.get(chunk.shard))
            self._leftovers.append(Leftover(kept, 0, len(result.samples), result.samples))
        self._end(chunk)
        self._progress.settle(task.batch)
        return NOTHING

    def _check_first(self, chunk: Chunk, first: int) -> None:
        """That all shards are cut out of one sequence, as far as its first sample tells."""
        if self._first is None or not first:
            return
        self._first = self._first or first
        if first != self._first:
            self._first = None  # it is told once
            warnings.warn(
                f"shard {chunk.shard} of this iterable dataset found another first sample than the others. Each reads "
                "all of it and keeps its part by position, so samples may be lost now, or come twice. If it orders "
                "itself, let it draw from gluonloader.get_rng(), or shuffle here (shuffle=True, shuffle_buffer=n); "
                "if it gives a worker's part only, let it do so by shard(num_shards, index)",
                RuntimeWarning,
                stacklevel=5,
            )

    def fail(self, task: Task, error: BaseException) -> bool:
        leftover = self._fetching.get(task.batch)
        if leftover is not None:
            leftover.samples = []
            return True
        self._progress.settle(task.batch)
        chunk = task.work
        if not isinstance(chunk, Chunk) or not isinstance(error, (WorkerDied, BatchTimeout)):
            return True
        # To go on behind a sample that kills or holds up its worker, that sample would have to be read again.
        told = self._ended.get(chunk.shard, chunk.number) < chunk.number
        self._end(chunk)
        return not told

    def _end(self, chunk: Chunk) -> None:
        self._ended[chunk.shard] = min(chunk.number, self._ended.get(chunk.shard, chunk.number))

    def finish(self) -> None:
        self.finished = True
        if self._shards.last_batch == "rollover":
            more = len(self._all_leftovers()) % self._shards.size
            for leftover in reversed(self._leftovers):
                samples = leftover.samples or []
                count = min(more, len(samples))
                if count:
                    start = leftover.stop - count
                    self.carry.insert(0, Leftover(leftover.chunk, start, leftover.stop, samples[-count:]))
                more -= count

    def state(self) -> dict[str, Any]:
        shards, progress = self._shards, self._progress
        if self._all_ended and not self._in_leftovers:
            first, ahead = self._first_of_leftovers, progress.ahead
            if all(number in ahead or self._is_beyond(number) for number in range(progress.next, first)):
                progress = Progress(first)
        return {
            **progress.state(),
            **_settings(shards),
            "ended": sorted([shard, chunk] for shard, chunk in self._ended.items()),
            "hints": [_hint_state(self._hints.get(shard)) for shard in range(shards.num_shards)],
            "leftovers": [leftover.state() for leftover in self._leftovers if not self._is_awaited(leftover.chunk)],
        }

    def _is_awaited(self, chunk: Chunk) -> bool:
        """Whether it is just being delivered: a signal handler asks in the middle of that."""
        number = chunk.number * self._shards.num_shards + chunk.shard
        return chunk.epoch == self.epoch and number in self._progress.awaited

    def rewind(self) -> None:
        self._begin(self.state())

    @staticmethod
    def carried_of(shards: Shards, state: Mapping[str, Any]) -> list[Leftover]:
        """What the epoch of a position took over from the one before."""
        plan = ShardPlan(shards, state["epoch"], state["seed"], -1, [])
        return [plan._load_leftover(saved) for saved in state["leftovers"] if saved["epoch"] != state["epoch"]]

    def _load_leftover(self, saved: Mapping[str, Any]) -> Leftover:
        chunk = self._chunk(saved["epoch"], saved["shard"], saved["chunk"], _load_hint(saved["hint"]))
        return Leftover(chunk, saved["start"], saved["stop"], None)

    @staticmethod
    def check(shards: Shards, state: Mapping[str, Any]) -> None:
        """That a position fits.

        Raises:
            ValueError: it does not.
        """
        int_field(state, "batch")
        ranges_field(state, "ahead")
        for name, ours in _settings(shards).items():
            value = field(state, name)
            if value != ours or type(value) is not type(ours):
                raise bad_state(name, value, f"the loader here has {ours!r}; give it {name}={value!r}")
        for entry in _list(state, "ended", None):
            if not isinstance(entry, list) or len(entry) != 2 or not all(type(part) is int for part in entry):
                raise bad_state("ended", entry, "has to be a pair of shard and chunk")
        for hint in _list(state, "hints", shards.num_shards):
            _check_hint(hint, "hints.")
        for leftover in _list(state, "leftovers", None):
            for name in ("epoch", "shard", "chunk", "start", "stop"):
                int_field(leftover, name, path="leftovers.")
            _check_hint(field(leftover, "hint", "leftovers."), "leftovers.hint.")


def only_sample(samples: Sequence[Any]) -> Any:
    """The batch of a dataset that gives whole batches."""
    (batch,) = samples
    return batch


def _settings(shards: Shards) -> dict[str, Any]:
    return {
        "num_shards": shards.num_shards,
        "batch_size": shards.size,
        "last_batch": shards.last_batch,
        "shuffle_buffer": shards.buffer,
    }


def _list(state: Mapping[str, Any], name: str, length: int | None) -> list[Any]:
    value = field(state, name)
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise bad_state(name, value, "has to be a list" + (f" of {length}" if length is not None else ""))
    return value


def _hint_state(hint: Hint | None) -> dict[str, Any] | None:
    return None if hint is None else {"group": hint.group, "state": hint.state}


def _load_hint(saved: Any) -> Hint | None:
    return None if saved is None else Hint(saved["group"], saved["state"])


def _check_hint(saved: Any, path: str) -> None:
    if saved is not None:
        int_field(saved, "group", path=path)
        field(saved, "state", path)
