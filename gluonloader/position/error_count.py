"""Counts the samples of an epoch that raised an error, for the limit of `OnError`."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from ..describe import counted
from ..errors import TooManyErrors
from ..state import State, int_field
from ..work.in_flight import InFlight
from ..work.info import BadSample
from ..work.task import Task
from ..work.tolerance import Tolerated

NOTHING: Final = object()  # is returned instead of a batch if there is no batch to deliver
_SHOWN: Final = 10  # samples in the text of the error


class ErrorCount:
    """The samples that raised an error and were tolerated, counted over settled batches.

    A batch counts only when it is settled, like in a position. So the count after a batch is the same for any number of
    workers, and after a resume.

    Args:
        in_flight: the batches that are not settled.
        count: of the position from which the epoch starts.

    Attributes:
        limit: the most that are allowed; None without `on_error`; may be set.
    """

    def __init__(self, in_flight: InFlight, count: int) -> None:
        self.limit: int | None = None
        self._in_flight = in_flight
        # How many samples of settled batches raised an error, the first of them, and those of other batches by number.
        # All in one attribute; see NOTE [interrupts] in executors/base.py.
        self._counted: tuple[int, tuple[BadSample, ...], dict[int, tuple[BadSample, ...]]] = count, (), {}

    def unwrap(self, task: Task, result: Any) -> Any:
        """The batch of a task's result, or NOTHING if the batch is empty; notes the errors in the batch."""
        tolerated = type(result) is Tolerated
        if tolerated or self._counted[2]:
            self._settle()
            count, first, new = self._counted
            self._counted = count, first, {**new, task.batch: result.errors if tolerated else ()}
        if not tolerated:
            return result
        return NOTHING if result.is_empty else result.batch

    def of(self, task: Task) -> tuple[BadSample, ...]:
        """The samples of a batch in flight that raised an error."""
        return self._counted[2].get(task.batch, ())

    def excess(self, task: Task) -> TooManyErrors | None:
        """The error if this batch in flight and the settled batches have more errors than allowed; otherwise None."""
        errors = self.of(task)
        if not errors or self.limit is None:
            return None
        self._settle()
        count, first, _ = self._counted
        if count + len(errors) <= self.limit:
            return None
        return TooManyErrors(self._text(task, count + len(errors), (*first, *errors)[:_SHOWN]))

    def _text(self, task: Task, count: int, shown: tuple[BadSample, ...]) -> str:
        first = "".join(f"\n  {bad.sample}: {bad.error}" for bad in shown)
        which = "These samples" if len(shown) == count else f"The first {len(shown)} that this process has read"
        return (
            f"{counted(count, 'sample', 'samples')} of epoch {task.epoch} raised an error, more than "
            f"limit={self.limit:,} of on_error allows, so the epoch ends before batch {task.batch}. {which}:{first}\n"
            "Repair or remove the samples, or pass a larger limit: on_error=OnError(..., limit=...); to continue this "
            "epoch, load loader.state_dict() into a loader with a larger limit"
        )

    def _settle(self) -> None:
        """Adds the errors of the batches that are settled by now."""
        count, first, new = self._counted
        settled = [number for number in new if number not in self._in_flight]
        for number in settled:
            count += len(new[number])
            first = (*first, *new[number])[:_SHOWN]
        if settled:
            self._counted = count, first, {number: new[number] for number in new if number not in settled}

    def rewind(self) -> None:
        """Called before the batches in flight are dropped: they will be made again."""
        self._settle()
        count, first, _ = self._counted
        self._counted = count, first, {}

    def state(self, in_flight: Container[int]) -> dict[str, Any]:
        """The field of a position in which batches with these numbers are not settled."""
        count, _, new = self._counted
        settled = [errors for number, errors in new.items() if number not in in_flight]
        return {} if self.limit is None else {"errors": count + sum(map(len, settled))}


def count_in(state: State) -> int:
    """The count in the fields of a position."""
    return int_field(state, "errors") if "errors" in state else 0
