"""What an epoch asks of both plans."""

from __future__ import annotations

from typing import Any, Protocol

from ...locks import Lock
from ...position.error_count import ErrorCount
from ...work.in_flight import InFlight
from ...work.task import Task


class Plan(Protocol):
    """Gives out the tasks of one epoch and knows which of them are settled.

    Callers hold `lock` during each call, since another thread or a signal handler may ask for the state. See also NOTE
    [interrupts] in executors/base.py: each call can be interrupted, and is then repeated after `resume`.
    """

    lock: Lock
    in_flight: InFlight  # the plan adds tasks, the epoch settles them
    epoch: int
    errors: ErrorCount
    outdated: bool  # the loader has loaded a position since then, so no samples move from this epoch to the next

    @property
    def finished(self) -> bool:
        """Whether the epoch was read to its end."""

    @property
    def position(self) -> int:
        """The number of batches before the current position; it may be read without the lock."""

    @property
    def samples_read(self) -> int | None:
        """How many samples of an iterable dataset were read before the current position; None if that is not known."""

    def next(self) -> Task | None:
        """Adds the next task to `in_flight`; None until other batches are settled; StopIteration at the end."""

    def accept(self, task: Task, result: Any) -> Any:
        """Takes the result of a task, which the epoch settles next; returns the batch to deliver, or NOTHING."""

    def fail(self, task: Task, error: BaseException) -> bool:
        """Notes that a task failed, which the epoch settles next; returns whether the user gets the error."""

    def finish(self) -> None:
        """Notes that nothing follows the tasks in flight: the epoch is finished when the last of them is settled."""

    def state(self) -> dict[str, Any]:
        """The position, as fields of a state."""

    def rewind(self) -> None:
        """Goes back to the position: `next` returns again all tasks that are not settled."""

    def resume(self) -> None:
        """Makes `next` continue after the newest task in flight, if the last call was interrupted."""
