"""`FunctionSampler`: the order of an epoch is what a function of the user returns for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ..errors import bad_argument
from ..indices import as_list
from .base import SeededSampler
from .passes import Order, as_keys, lazily

_COMPARED: Final = 1000  # items; random orders do not start with so many equal ones


class FunctionSampler(SeededSampler):
    """Yields what a function of the epoch returns; a loader makes it of a function that is passed as `sampler`.

    Args:
        name: the argument of the loader, for error texts.
        function: is called with the number of an epoch, and returns a list, a range or an array of indices or batches:
            the same for the same number, and as many for each epoch.

    Raises:
        ValueError: it returns something else for epoch 0, nothing, or another order when it is called again.
    """

    is_function = True  # so no attribute says whether the order is the same

    def __init__(self, name: str, function: Callable[[int], Any]) -> None:
        super().__init__(None, draws=False)
        self._name, self._function = name, function
        try:
            inspect.signature(function).bind(0)
        except TypeError:
            right = "it must accept one argument, the number of the epoch, and return the indices of that epoch"
            raise bad_argument(name, function, right) from None
        except ValueError:  # some functions in C have no signature
            pass
        first, again = self._returned(0), self._returned(0)
        self._length = len(first)
        if not self._length:
            raise bad_argument(
                name, function, "it returned no index for epoch 0; let it return those of the whole epoch"
            )
        if len(again) != self._length or _plain(first) != _plain(again):
            right = (
                "it returns another order when it is called again with the same epoch; let the order depend on the "
                "epoch alone, for example np.random.default_rng(epoch).permutation(length)"
            )
            raise bad_argument(name, function, right)

    def order(self, epoch: int) -> Order:
        return lazily(partial(self._order_of, epoch))

    def _order_of(self, epoch: int) -> Any:
        keys = self._returned(epoch)
        if len(keys) != self._length:
            what = f"it returned {len(keys)} items for epoch {epoch}, but {self._length} for epoch 0"
            raise bad_argument(self._name, self._function, f"{what}; all epochs must have the same length")
        return keys

    def _returned(self, epoch: int) -> Sequence[Any]:
        returned = self._function(epoch)
        if isinstance(returned, (list, tuple, range, np.ndarray)):
            return returned  # type: ignore[return-value]  # an array is one, too
        if hasattr(returned, "tolist"):  # a tensor
            return returned.tolist()  # type: ignore[no-any-return]
        if not hasattr(returned, "__iter__") or isinstance(returned, (str, bytes)):
            right = f"it returned {returned!r:.80} for epoch {epoch}; let it return a list or an array"
            raise bad_argument(self._name, self._function, right)
        return list(returned)

    def __len__(self) -> int:
        return self._length


def _plain(keys: Sequence[Any]) -> list[Any]:
    """The first items, which can be compared."""
    first = as_list(as_keys(keys[:_COMPARED]))
    return [as_list(item) if isinstance(item, (list, tuple, np.ndarray)) else item for item in first]
