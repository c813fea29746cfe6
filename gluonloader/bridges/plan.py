"""The epochs of a bridge: which batch of the source is read next, and the position in the source.

BridgeTasks --> BridgePlan, one epoch --Task(Chunk)--> SourceReader (reader.py) --Read--> BridgePlan --> batch

A place in an epoch consists of two fields of a state: `batch` says how many batches the source had yielded when the
last one was delivered, and `source` is the source's state at that moment (see `state_of`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..errors import bad_argument, warn
from ..frameworks import state_from_json
from ..loading.plan import NOTHING, Plan
from ..loading.shard_source import ShardSource
from ..locks import Lock
from ..position.error_count import ErrorCount
from ..position.progress import Progress
from ..position.shards import Shards
from ..state import State, field, int_field
from ..work.in_flight import InFlight
from ..work.task import Chunk, Hint, Task
from .reader import Read, SourceReader
from .source import BridgeSource

T = TypeVar("T")

_START: Final[State] = {"batch": 0, "source": None}


def _saved(place: State) -> dict[str, Any]:
    if isinstance(place["source"], Exception):  # saving the state has failed
        raise place["source"]
    return dict(place)


class BridgePlan(Plan):
    """One epoch of a source: its batches in turn, until the source ends.

    Args:
        first: the chunk of the first batch.
        place: where the source stands now.
        loaded: the place to which the source has to move; None for where it stands.

    Attributes:
        failed: the source could not be opened.
        end: the place where the next epoch starts; None until the source has ended.
    """

    def __init__(self, first: Chunk, reader: SourceReader, place: State, loaded: State | None) -> None:
        self.epoch, self.loaded, self.outdated, self._ends_here = first.epoch, loaded, False, False
        self.lock, self.in_flight = Lock(), InFlight()
        self.errors = ErrorCount(self.in_flight, 0)
        self._reader, upcoming = reader, 0
        if loaded is not None:
            place = {name: loaded[name] for name in _START}
            first = replace(first, hint=Hint(place["batch"], place["source"]))
            upcoming = 0 if place["source"] is None else place["batch"]  # without a state, all batches are read again
        self._first, self._progress = first, Progress(upcoming, (), self.in_flight)
        # The last batch, and the places before and after it; one attribute, see NOTE [interrupts] in executors/base.py.
        self._last = -1, place, place
        self.failed = False
        self.end: State | None = None

    def next(self) -> Task:
        if self.end is not None or self.failed:
            raise StopIteration
        chunk = replace(self._first, number=self._progress.upcoming)
        self._progress.issue(task := Task(self.epoch, chunk.number, chunk.seed, chunk, worker=0))
        return task

    def accept(self, task: Task, result: Any) -> Any:
        self._reader.check_newest(self._first.iteration)
        read: Read = result.batch
        if read.ended:
            self.end = self.end or {"batch": 0, "source": read.state}
        elif read.batch is not NOTHING:
            self._last = task.batch, self._place, {"batch": read.number, "source": read.state}
        return read.batch

    def fail(self, task: Task, error: BaseException) -> bool:
        self.failed = self._reader.opened != self._first.iteration
        return True

    def finish(self) -> None:
        self._ends_here = True

    @property
    def finished(self) -> bool:
        return self._ends_here and not self.in_flight and not self.failed

    @property
    def _place(self) -> State:
        number, before, after = self._last
        return before if number in self.in_flight else after

    @property
    def samples_read(self) -> None:
        return None

    @property
    def position(self) -> int:
        batch: int = self._place["batch"]
        return batch

    def state(self) -> dict[str, Any]:
        return _saved(self._place)

    def rewind(self) -> None:
        raise TypeError("the source of a bridge cannot go back to the last delivered batch, so flush() is not possible")

    def resume(self) -> None:
        self._progress.resume()


class BridgeTasks(ShardSource):
    """The source of a bridge as one shard, whose chunks are batches; keeps the place in it between two epochs."""

    loader = "a bridge"

    def __init__(self, source: BridgeSource, reader: SourceReader) -> None:
        super().__init__(Shards(num_shards=1, batch_size=1, last_batch="keep", shuffle_buffer=0, workers=1))
        self._source, self._reader = source, reader
        self._reached: tuple[int, State] = 0, _START  # the last epoch whose start was reached, and that place
        self._plan: BridgePlan | None = None  # the newest epoch, unless the next one was set or loaded since then
        self._pid: int | None = None  # the process that reads the source

    def __reduce__(self) -> Any:
        raise TypeError("a bridge cannot be copied or pickled, since both would read the same source; make a new one")

    def length(self, dataset: Any) -> int | None:
        return self._source.length()

    def plan(self, epoch: int, seed: int, loaded: State | None) -> Plan:
        self._pid = self._pid or os.getpid()
        if os.getpid() != self._pid:
            raise RuntimeError("this bridge is in use in the parent process; make a new one in the forked child")
        last = self._plan
        if last is not None and last.failed:  # it starts again
            epoch, loaded = last.epoch, last.loaded
        self._reader.newest += 1
        first = self.shards.first_chunk(epoch, seed, self._reader.newest)
        self._plan = BridgePlan(first, self._reader, self._start_of(epoch), loaded)
        return self._plan

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]:
        return _saved(self._start_of(epoch))

    def _start_of(self, epoch: int) -> State:
        reached, place = self._reached
        return place if epoch == reached else _START

    def fit(self, fields: State, new_batch_size: bool) -> State:
        if new_batch_size:
            raise bad_argument("new_batch_size", True, "the source of a bridge makes the batches; remove it")
        int_field(fields, "batch")
        state_from_json(field(fields, "source"))
        return fields

    def load(self, fields: State, load_rest: Callable[[], T], new_batch_size: bool) -> T:
        result = load_rest()
        self._plan = None
        return result

    def warn_of_reading(self, dataset: Any, fields: State) -> None:
        if fields["batch"] and fields["source"] is None:
            warn(
                f"resuming a bridge to {self._source.name} reads {fields['batch']:,} batches again, to skip them; "
                "a source with state_dict() and load_state_dict() resumes without reading them again",
            )

    def set_epoch(self, number: int, loaded: bool = False) -> bool:
        if not loaded:
            self._reached, self._plan = (number, _START), None
        return False

    def finish(self, plan: Plan) -> None:
        if plan is self._plan and plan.finished and not plan.outdated:
            self._reached = plan.epoch + 1, self._plan.end or _START
