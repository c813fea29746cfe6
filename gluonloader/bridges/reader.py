"""`SourceReader`: reads the source of a bridge in a worker thread, one epoch after the other.

Chunk --> open the source, at the first chunk of an epoch --> next(source) --> convert --> Read

A chunk is one attempt to read a batch. A source cannot be opened again for the same epoch, unlike the datasets of NOTE
[streams]. So chunks have to come in order, each once, and chunks of an older epoch are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..errors import LoaderClosed, bad_state
from ..loading.plan import NOTHING
from ..messages import message
from ..work.streams import ChunkSamples, Seed, Streams
from ..work.task import Chunk, OnRow, located
from .source import BridgeSource, OpenedSource, state_of


@message(frozen=True, slots=True)
class Read:
    """The result of one attempt to read a batch."""

    batch: Any = NOTHING  # NOTHING if the batch was skipped, or if there is none
    number: int = 0  # how many batches of the epoch the source has yielded
    state: Any = None  # of the source, before the next batch or the next epoch; see `state_of`
    ended: bool = False  # the source has no more batches in this epoch


class SourceReader(Streams):
    """The streams of a bridge: at most one is open, that of the newest iteration.

    Attributes:
        newest: the iteration that may read the source; set before its first chunk is submitted.
        opened: the last iteration for which the source was opened.
    """

    def __init__(self, source: BridgeSource, convert: Callable[[Any], Any]) -> None:
        super().__init__(source)
        self._source, self._convert = source, convert
        self.newest = self.opened = self._iteration = 0
        self._upcoming = 0  # the number of the next chunk
        self._number = 0  # how many batches the source has yielded in this epoch
        self._open: OpenedSource | None = None

    def check_newest(self, iteration: int) -> None:
        """Raises LoaderClosed if a newer iteration may read the source."""
        if iteration != self.newest:
            raise LoaderClosed("a newer iteration of this bridge has started; to run two at a time, make two bridges")

    def read(self, chunk: Chunk, seed_group: Seed, on_row: OnRow | None = None) -> ChunkSamples:
        self.check_newest(chunk.iteration)
        try:
            return ChunkSamples([self._read(chunk)], None, 0)
        except BaseException as error:
            place = f"the source of a bridge, batch {self._number} of epoch {chunk.epoch}"
            error = located(error, "a bridge's source or output", place)
            raise error

    def _read(self, chunk: Chunk) -> Read:
        starts = chunk.iteration != self._iteration
        if starts:
            self._open = None  # closes what the last epoch has left open, before the source is opened again
            self._iteration, self._upcoming, self._number = chunk.iteration, chunk.number, chunk.number
        if chunk.number != self._upcoming:
            raise RuntimeError("this batch is lost: a signal handler raised an exception before it was delivered")
        self._upcoming += 1
        if starts:
            self._open = self._source.open(chunk.epoch, None if chunk.hint is None else chunk.hint.state)
            self.opened = chunk.iteration
        if self._open is None:
            return Read(ended=True)
        return self._next(self._open, 0 if chunk.hint is None else chunk.hint.group)

    def _next(self, source: OpenedSource, delivered: int) -> Read:
        """The next batch; NOTHING if it was delivered before the epoch was resumed."""
        try:
            batch = next(source.batches)
        except StopIteration:
            self._open = None
            if self._number < delivered:
                raise bad_state("batch", delivered, f"this source ended after {self._number} batches") from None
            # If the next epoch reads a new object, that starts at its first batch, so no state is needed.
            return Read(state=state_of(source.stateful) if source.lasts else None, ended=True)
        self._number += 1
        if self._number <= delivered:
            return Read()
        return Read(self._convert(batch), self._number, state_of(source.stateful))

    @property
    def iterations(self) -> set[int]:
        return set() if self._open is None else {self._iteration}

    def close(self, iterations: Collection[int] | None = None) -> None:
        if iterations is None or self._iteration in iterations:
            self._open = None
