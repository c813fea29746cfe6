"""`BuiltThere`: stands for a dataset that only the server builds, in the other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...describe import call, describe, short_repr
from ...errors import bad_argument
from ...state import has_state


class BuiltThere:
    """A dataset that the server of a node builds, so that no rank has to keep it in memory.

    Args:
        function: a function without arguments that returns the dataset.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._length: int | None = None
        self._here: Any = None

    def __reduce__(self) -> Any:
        return BuiltThere, (self._function,)

    def build(self) -> Any:
        """The dataset, in this process: built at the first call."""
        if self._here is None:
            dataset = self._function()
            for method in ("__len__", "__getitem__"):
                if not hasattr(dataset, method):
                    right = (
                        f"it returned {type(dataset).__name__}, which has no {method}; pass an iterable dataset itself"
                    )
                    raise bad_argument("dataset", self._function, right)
            if has_state(dataset):
                right = (
                    f"{type(dataset).__name__} has a state_dict(), so each rank may load another state; remove share"
                )
                raise bad_argument("dataset", self._function, right)
            self._here = dataset
        return self._here

    def set_length(self, length: int) -> None:
        """Sets the length, which the server knows."""
        self._length = length

    def __len__(self) -> int:
        if self._length is None:
            self._length = len(self.build())
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self.build()[index]

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._function))
