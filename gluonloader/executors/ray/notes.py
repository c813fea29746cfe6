"""Notes of the sample that each worker reads, in an actor beside the main program, so that they outlive the worker.

    worker --Note(ticket, row)--> Board          the main program, after the death of the worker: Board.row_of(ticket)

They are taken only for batches whose worker has died before, since each note takes about 1 ms.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

_ANSWER_S: Final = 5.0  # how long the main program waits for a note


class Board:
    """The rows that workers have noted; an actor."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}  # by ticket

    def note(self, ticket: int, row: int) -> None:
        self._rows[ticket] = row

    def row_of(self, ticket: int) -> int | None:
        return self._rows.pop(ticket, None)


@dataclass(frozen=True, slots=True)
class Note:
    """What a worker calls with ticket and row."""

    board: Any  # the handle of the actor

    def __call__(self, ticket: int, row: int) -> None:
        importlib.import_module("ray").get(self.board.note.remote(ticket, row))


class Notes:
    """The main program's side; the actor starts when it is needed."""

    def __init__(self) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._board: Any = None

    def note(self) -> Note:
        """What to pass to a worker."""
        if self._board is None:
            here = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
                self._ray.get_runtime_context().get_node_id(), soft=True
            )
            self._board = self._ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        return Note(self._board)

    def row_of(self, ticket: int) -> int | None:
        """The row that a worker noted last for this ticket, None if it noted none."""
        if self._board is None:
            return None
        try:
            row: int | None = self._ray.get(self._board.row_of.remote(ticket), timeout=_ANSWER_S)
            return row
        except self._ray.exceptions.RayError:  # its node is gone, or it is too busy
            self._board = None
            return None

    def close(self) -> None:
        if self._board is not None:
            self._ray.kill(self._board)
            self._board = None
