"""The protocol of a source of tasks whose order is not known ahead: shards, or the source of a bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ..state import State
from .plan import Plan

T = TypeVar("T")


class StreamSource(Protocol):
    """Chunks of a dataset whose order is not known ahead; for the methods see `IndexSource`."""

    loader: str = "a DataLoader"
    sampler: None = None
    fixed_length: None = None
    draws_late: bool = False

    def length(self, dataset: Any) -> int | None: ...

    def batches(self, dataset: Any, copied_length: int | None) -> int: ...

    def plan(self, epoch: int, seed: int, loaded: State | None) -> Plan: ...

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]: ...

    def fit(self, fields: State, new_batch_size: bool) -> State: ...

    def load(self, fields: State, load_rest: Callable[[], T], new_batch_size: bool) -> T: ...

    def warn_of_reading(self, dataset: Any, fields: State) -> None:
        """Warns if the dataset is read again up to this position."""

    def set_epoch(self, number: int, loaded: bool = False) -> bool:
        return False

    def leave_epochs(self) -> None:
        return

    def move_on(self, number: int) -> None:
        return

    def finish(self, plan: Plan) -> None: ...
