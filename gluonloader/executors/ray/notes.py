"""An actor on the node of the main program that notes which sample a worker reads, to know it after a death.

    worker --Note(ticket, row)--> Board          the main program, after the death of the worker: Board.row_of(ticket)

Workers send notes only in careful attempts, since each note takes about 1 ms.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from ...messages import message
from .connection import RayConnection

_ANSWER_S: Final = 5.0  # how long a worker or the main program waits for the board


class Board:
    """The rows that workers have noted; an actor."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}  # by ticket

    def note(self, ticket: int, row: int) -> None:
        self._rows[ticket] = row

    def row_of(self, ticket: int) -> int | None:
        return self._rows.pop(ticket, None)


@message(frozen=True, slots=True)
class Note:
    """A function that a worker calls to note the row that it is about to read."""

    board: Any  # the handle of the actor

    def __call__(self, ticket: int, row: int) -> None:
        ray: Any = importlib.import_module("ray")
        try:
            ray.get(self.board.note.remote(ticket, row), timeout=_ANSWER_S)
        except ray.exceptions.RayError:
            pass  # the board is gone or too busy: the sample is read without a note


class Notes:
    """Starts the actor `Board` at the first use, and reads its notes; used by the main program."""

    def __init__(self, ray: RayConnection) -> None:
        self._ray = ray
        self._board: Any = None

    def note(self) -> Note:
        """Returns the `Note` to pass to a worker."""
        if self._board is None:
            here = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
                self._ray.module.get_runtime_context().get_node_id(), soft=True
            )
            self._board = self._ray.module.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        return Note(self._board)

    def row_of(self, ticket: int) -> int | None:
        """The row that a worker noted last for this ticket, None if it noted none."""
        if self._board is None:
            return None
        ray = self._ray.module
        try:
            row: int | None = ray.get(self._board.row_of.remote(ticket), timeout=_ANSWER_S)
            return row
        except ray.exceptions.RayError:  # its node is gone, or it is too busy
            self._board = None
            return None

    def close(self) -> None:
        board, self._board = self._board, None
        if board is not None:
            self._ray.kill(board)
