"""The plan of an iterable dataset: the chunks of all shards in turn, then the samples that the shards left over.

    chunk 0 of shard 0, chunk 0 of shard 1, ..., chunk 1 of shard 0, ...      the same worker for all chunks of a shard
        a full chunk is a batch;  a short one ends its shard, and its samples are a leftover
    when all shards have ended: the leftovers in the order of shards, cut into batches; only the very last can be short

The plan learns the length of a shard only when the shard ends, so it also submits chunks beyond the end. Their results
are empty, and are not delivered. Chunk t of shard s has number t * num_shards + s, and batches of leftovers have the
numbers after the last chunk of the longest shard. So seeds and positions do not depend on timing.

Over ranks, a chunk has the same number on each rank, and each rank skips the numbers of the other ranks' shards. So the
batches of chunks do not depend on the number of ranks. A quota ends the epoch earlier, or adds batches; see quota.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from enum import Enum
from itertools import pairwise
from typing import Any

from ...errors import BatchTimeout, WorkerDied
from ...locks import Lock
from ...position import shards as position
from ...position.error_count import NOTHING, ErrorCount, count_in
from ...position.progress import Progress
from ...position.shards import Hints, Leftover, LeftoverKey, ShardEnds, Shards
from ...state import State, ranges_field
from ...work.in_flight import InFlight
from ...work.streams import ShardBatch, ShardEnd
from ...work.task import Chunk, Hint, Samples, Task
from .quota import Quota, Stop, chunk_at


class Phase(Enum):
    """What an epoch reads now."""

    CHUNKS = "the chunks of the shards, in turn"
    LEFTOVERS = "batches of leftovers"


class UnreadLeftovers:
    """The leftovers of a loaded position whose samples are not in memory, so that they are read again, before all else.

    Their tasks make no batch. They have the numbers -1, -2, and so on, which no batch has.

    Attributes:
        by_number: the leftovers by the numbers of their tasks.
    """

    def __init__(self, leftovers: Iterable[Leftover]) -> None:
        self.by_number = {-1 - i: leftover for i, leftover in enumerate(leftovers)}
        self._next = -1  # the tasks before this number were issued

    def next(self, in_flight: InFlight) -> int | None:
        """The number of the next leftover to read; None if all were issued."""
        while (leftover := self.by_number.get(self._next)) is not None:
            if leftover.samples is None and self._next not in in_flight:
                return self._next
            self._next -= 1
        return None


class ShardPlan:
    """One epoch of an iterable dataset.

    Args:
        iteration: a number that no other live iterator of the loader has.
        carried: the leftovers of the last epoch (rollover).
        state: a position that `position.check` has accepted; None for the start of the epoch.
        quota: how many batches to deliver; None for those of all samples.

    Attributes:
        carried_before: `carried`, until this epoch has carried over its own leftovers; then None.
    """

    def __init__(
        self,
        shards: Shards,
        epoch: int,
        seed: int,
        iteration: int,
        carried: list[Leftover],
        state: State | None = None,
        quota: Quota | None = None,
    ) -> None:
        self.epoch, self.outdated, self._ends_here = epoch, False, False
        self.lock = Lock()
        self.in_flight = InFlight()
        self.errors = ErrorCount(self.in_flight, 0 if state is None else count_in(state))
        self._shards, self._seed, self._quota = shards, seed, quota
        self.carried_before: list[Leftover] | None = carried
        # What is not in memory is read by the streams of this iteration.
        self._carried = [replace(left, chunk=replace(left.chunk, iteration=iteration)) for left in carried]
        self._first_chunk = shards.first_chunk(epoch, seed, iteration)
        self._first_sample = 0  # its hash; 0: unknown
        self._has_failed = False  # a chunk has, and nobody knows how many samples it took
        self._restart: State | None = None  # the state from which an interrupted `rewind` has to start
        self._start(state)

    def _start(self, state: State | None) -> None:
        self.errors.rewind()
        self.in_flight.clear()
        self._ends = ShardEnds(self._shards, {})
        by_shard: dict[int, Hint | None] = {}
        self._leftovers = _by_key(self._carried)
        self._stop: Stop | None = None  # once it is known
        self._loaded = state
        self._progress = Progress(0, (), self.in_flight)
        if state is not None:
            ended = {shard: chunk for shard, chunk in state["ended"] if self._shards.owns(shard)}
            self._ends = ShardEnds(self._shards, ended)
            hints = [hint for hint in state["hints"] if self._shards.owns(hint["shard"])]
            by_shard = {hint["shard"]: position.load_hint(hint) for hint in hints}
            whole = replace(self._shards, rank=0, ranks=1)
            saved = position.rest_of_leftovers(whole, state) if self._is_shared(state) else state["leftovers"]
            own = [saved for saved in saved if self._shards.owns(saved["shard"])]
            self._leftovers = _by_key(position.load_leftover(self._first_chunk, saved) for saved in own)
            self._progress = self._progress_of(state)
            self._stop = Stop.load(state.get("stop"))
        self._hints = Hints(self._shards, self.in_flight, by_shard)
        self._unread = UnreadLeftovers(left for left in self._leftovers.values() if left.samples is None)
        all_ended = self._ends.all_known and self._progress.upcoming >= self._ends.first_leftover_batch
        self._phase = Phase.LEFTOVERS if all_ended else Phase.CHUNKS
        self._leftover_samples: list[Any] | None = None  # the samples of all leftovers, once all shards have ended

    def _is_shared(self, state: State) -> bool:
        """Whether other ranks read parts of the same position."""
        return self._shards.ranks > 1 and "ranks" not in state

    def _progress_of(self, state: State) -> Progress:
        number, ahead = state["batch"], ranges_field(state, "ahead")
        if self._is_shared(state):
            # Chunks of other shards may be further than the ends of these, where the batches of leftovers are numbered.
            number = min(number, self._ends.first_leftover_batch) if self._ends.all_known else number
            if self._ends.all_known:
                ahead = [range(part.start, min(part.stop, self._ends.first_leftover_batch)) for part in ahead]
                ahead = [part for part in ahead if part]
        return Progress(number, ahead, self.in_flight)

    def next(self) -> Task | None:
        if self._quota is not None and self._stop is None:
            self._stop = self._quota.stop(self._shards, self._loaded)
        self._hints.use_settled()
        if (unread := self._unread.next(self.in_flight)) is not None:
            chunk = self._unread.by_number[unread].chunk
            self.in_flight.add(task := self._task(unread, chunk, chunk.shard))
            return task
        if self._phase is Phase.CHUNKS:
            if (next_chunk := self._next_chunk()) is not None:
                return next_chunk
            if self._progress.in_flight:
                return None  # leftover batches may get the numbers of these chunks, which lie beyond the ends of shards
            progress = Progress(self._ends.first_leftover_batch, (), self.in_flight)
            self._progress, self._phase = progress, Phase.LEFTOVERS
        return self._next_of_leftovers()

    def _next_chunk(self) -> Task | None:
        """Issues the next chunk; None if all shards have ended before it; StopIteration at the stop of the ranks."""
        progress = self._progress
        first_leftover_batch = self._ends.first_leftover_batch if self._ends.all_known else None
        while first_leftover_batch is None or progress.upcoming < first_leftover_batch:
            number = progress.upcoming
            if self._stop is not None and self._stop.chunk is not None and number >= self._stop.chunk:
                raise StopIteration
            chunk, shard = divmod(number, self._shards.num_shards)
            if not self._shards.owns(shard):
                progress.upcoming = self._shards.next_owned(number)
            elif self._ends.is_beyond(number):
                progress.upcoming += 1
            elif progress.issue(task := self._task(number, self._chunk(shard, chunk), shard)):
                return task
            else:
                progress.upcoming += progress.settled_from(number + 1)
        return None

    def chunk_task(self, number: int) -> Task:
        """Adds the task of any chunk, without the tasks before it."""
        chunk, shard = divmod(number, self._shards.num_shards)
        self.in_flight.add(task := self._task(number, self._chunk(shard, chunk), shard))
        return task

    def chunks_to_skip(self) -> int:
        """How many chunks workers read again only to reach the next chunks of the shards and the unread leftovers."""
        start = self._progress.position
        chunks = [leftover.chunk for leftover in self._unread.by_number.values()]
        for number in range(start, start + self._shards.num_shards):  # one for each shard
            if not self._ends.is_beyond(number):
                chunk, shard = divmod(number, self._shards.num_shards)
                chunks.append(self._chunk(shard, chunk))
        return sum(chunk.number for chunk in chunks if chunk.hint is None)

    @property
    def position(self) -> int:
        number, ends = self._progress.position, self._ends
        of_leftovers = max(0, number - ends.first_leftover_batch) if ends.all_known else 0
        return ends.full_chunks(number) + of_leftovers

    @property
    def samples_read(self) -> int | None:
        if self._has_failed:
            return None
        own = sum(leftover.stop - leftover.start for leftover in self._leftovers.values() if not leftover.carried)
        return self._ends.full_chunks(self._progress.position) * self._shards.batch_size + own

    def _next_of_leftovers(self) -> Task | None:
        if self._leftover_samples is None:
            leftovers = list(self._leftovers.values())
            if any(leftover.samples is None for leftover in leftovers):
                return None
            leftovers.sort(key=lambda left: -1 if left.carried else left.chunk.shard)
            self._leftovers = _by_key(leftovers)
            self._leftover_samples = [sample for leftover in leftovers for sample in leftover.samples or ()]
        size, first = self._shards.batch_size, self._ends.first_leftover_batch
        while True:
            number = self._progress.upcoming
            batch = number - first
            samples = self._leftover_samples[batch * size : (batch + 1) * size]
            work: Samples | Chunk = Samples(samples)
            has_ended = not samples or (len(samples) < size and self._shards.last_batch != "keep")
            if has_ended if self._stop is None else batch >= self._stop.others:
                raise StopIteration
            if has_ended:
                work = self._repeated(batch)
            if self._progress.issue(task := self._task(number, work, batch)):
                return task
            self._progress.upcoming += self._progress.settled_from(number + 1)

    def _repeated(self, batch: int) -> Chunk:
        """The chunk that is repeated as number `batch` of the leftovers, after which the rank has no samples."""
        assert self._quota is not None
        assert self._leftover_samples is not None
        position = batch - self._shards.batches(len(self._leftover_samples))
        number = chunk_at(self._shards, self._quota.lengths, position)
        chunk, shard = divmod(number, self._shards.num_shards)
        return replace(self._first_chunk, shard=shard, number=chunk)

    def _chunk(self, shard: int, number: int) -> Chunk:
        return replace(self._first_chunk, shard=shard, number=number, hint=self._hints.of(shard))

    def _task(self, number: int, work: Chunk | Samples, shard: int) -> Task:
        return Task(self.epoch, number, self._seed, work, self._shards.worker_of(shard))

    def accept(self, task: Task, result: Any) -> Any:
        leftover, chunk = self._unread.by_number.get(task.batch), task.work
        if leftover is not None:
            leftover.samples = _read_again(leftover, result)
            return NOTHING
        if not isinstance(chunk, Chunk):
            return self.errors.unwrap(task, result)
        accepted = self._accept_chunk(task, chunk, result)
        self._compare_first_sample(chunk.shard, result.first)  # afterwards: an error must not hide the end of a shard
        if self._quota is not None:
            count = self._shards.batch_size if isinstance(result, ShardBatch) else len(result.samples)
            self._quota.check_length(chunk, count)
        return accepted

    def _accept_chunk(self, task: Task, chunk: Chunk, result: ShardBatch | ShardEnd) -> Any:
        if isinstance(result, ShardBatch):
            if task.batch == chunk.number * self._shards.num_shards + chunk.shard:  # it is not repeated
                self._hints.add(task.batch, result.hint)
            return self.errors.unwrap(task, result.batch)
        if result.samples:
            self._hints.use_settled()
            leftover = Leftover(self._chunk(chunk.shard, chunk.number), 0, len(result.samples), result.samples)
            self._leftovers[leftover.key] = leftover  # replaces that of the same chunk, if an interrupt came after it
        self._ends.add(chunk if result.end is None else replace(chunk, number=result.end))
        return NOTHING

    def _compare_first_sample(self, shard: int, first: int) -> None:
        """Raises an error if the shards see different sequences, although each is cut out of the whole dataset."""
        self._first_sample = self._first_sample or first
        if first and first != self._first_sample:
            raise RuntimeError(
                f"shard {shard} of this iterable dataset read a different first sample than the other shards. Each "
                "shard reads the whole dataset and keeps every num_shards-th sample, so samples would be missing or "
                "come twice. If the dataset orders its samples at random, let it draw from gluonloader.get_rng(), or "
                "shuffle in the loader instead (shuffle=True). If it yields only the samples of the "
                "current worker, define a method shard(num_shards, index) instead",
            )

    def fail(self, task: Task, error: BaseException) -> bool:
        leftover, chunk = self._unread.by_number.get(task.batch), task.work
        if leftover is not None:
            leftover.samples = []
            return True
        self._has_failed = True
        if not isinstance(chunk, Chunk) or not isinstance(error, (WorkerDied, BatchTimeout)):
            return True
        # The shard ends here: to read on, a worker would first have to read the sample that raised the error.
        was_lost = self._ends.is_beyond(task.batch)
        self._ends.add(chunk)
        return not was_lost

    def finish(self) -> None:
        self._ends_here = True

    @property
    def finished(self) -> bool:
        return self._ends_here and not self.in_flight

    @property
    def carried_over(self) -> list[Leftover]:
        """The leftovers for the next epoch (rollover), once this epoch is finished."""
        if self._shards.last_batch != "rollover":
            return []
        return position.carried_over(list(self._leftovers.values()), self._shards.batch_size)

    def state(self) -> dict[str, Any]:
        if self._restart is not None:
            return dict(self._restart)
        hints = self._hints.state()
        progress = self._progress.frozen()
        errors = self.errors.state(progress.in_flight)
        # A chunk may have added its leftover, but is not settled yet; then it is read again.
        in_flight = [divmod(number, self._shards.num_shards) for number in progress.in_flight]
        if self._ends.all_known and self._phase is Phase.CHUNKS:
            # The chunks that are still in flight are empty, and leftover batches may have the same numbers.
            first = self._ends.first_leftover_batch
            edges = [range(progress.position, progress.position), *progress.ahead, range(first, first)]
            if not any(self._ends.has_chunk_in(range(one.stop, other.start)) for one, other in pairwise(edges)):
                progress = Progress(first, (), InFlight())
        leftovers = [
            leftover
            for leftover in list(self._leftovers.values())
            if leftover.carried or (leftover.chunk.number, leftover.chunk.shard) not in in_flight
        ]
        return {
            **progress.state(),
            **errors,
            **self._shards.state(),
            **({} if self._stop is None else {"stop": asdict(self._stop)}),
            "ended": sorted([shard, chunk] for shard, chunk in self._ends.last_chunks.items()),
            "hints": hints,
            "leftovers": [leftover.state() for leftover in leftovers],
        }

    def rewind(self) -> None:
        self._restart, self._ends_here = self.state(), False
        self.resume()

    def resume(self) -> None:
        if self._restart is not None:
            self._start(self._restart)
            self._restart = None
        self._progress.resume()


def _read_again(leftover: Leftover, result: ShardBatch | ShardEnd) -> list[Any]:
    """The samples of a leftover, after a resume."""
    samples = result.samples[leftover.start : leftover.stop] if isinstance(result, ShardEnd) else []
    if len(samples) < leftover.stop - leftover.start:
        shard, chunk = leftover.chunk.shard, leftover.chunk.number
        raise ValueError(
            f"state: leftovers: chunk {chunk} of shard {shard} has other samples than the state says; the dataset "
            "has changed since the state was saved"
        )
    return samples


def _by_key(leftovers: Iterable[Leftover]) -> dict[LeftoverKey | int, Leftover]:
    """The leftovers by their keys; those that were carried over, which may have equal keys, by their numbers."""
    return {number if left.carried else left.key: left for number, left in enumerate(leftovers)}
