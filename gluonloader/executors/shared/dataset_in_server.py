"""`DatasetInServer`: stands in for a dataset that only the server keeps in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...describe import describe, short_repr
from ...errors import bad_argument
from ...state import has_state


def refuse_state(name: str, value: Any, dataset: Any) -> None:
    """Raises the error for a dataset that the ranks of a node cannot share, since it has a state.

    Args:
        name, value: the argument that the error names.
    """
    if has_state(dataset):
        right = f"{type(dataset).__name__} has a state_dict(), so each rank may load another state; remove share"
        raise bad_argument(name, value, right)


class DatasetInServer:
    """A dataset that the server of a node builds, so that no rank has to keep it in memory.

    Args:
        function: a function without arguments that returns the dataset.

    Attributes:
        length: the length, if it is known; the server tells it.
        has_length: False if the server has said that there is none; a sampler then decides what an epoch has.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.length: int | None = None
        self.has_length = True
        self._here: Any = None

    def __reduce__(self) -> Any:
        return DatasetInServer, (self.function,)

    def build(self) -> Any:
        """The dataset, in this process: built at the first call.

        Raises:
            ValueError: it cannot be read by index, or it has a state.
        """
        if self._here is None:
            dataset = self.function()
            kind = type(dataset).__name__
            for method in ("__len__", "__getitem__"):
                if not hasattr(dataset, method):
                    right = f"it returned {kind}, which has no {method}; pass an iterable dataset itself"
                    raise bad_argument("dataset", self.function, right)
            refuse_state("dataset", self.function, dataset)
            self._here = dataset
        return self._here

    def __len__(self) -> int:
        if not self.has_length:
            raise TypeError(f"what {self!r} returns has no length; pass a sampler, such as a PackingSampler")
        if self.length is None:
            self.length = len(self.build())
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.build()[index]

    @short_repr
    def __repr__(self) -> str:
        return f"{describe(self.function)}()"
