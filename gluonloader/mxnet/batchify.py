"""Gluon 2.0's `mxnet.gluon.data.batchify`: the functions of `gluonloader.batchify`, with NDArrays out.

In a worker the NDArrays look at the batch's own memory, so they are not copied on their way to the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike

from .. import batchify as core
from ..batchify import AsList, Group
from ..frameworks import in_worker, map_arrays
from .ndarrays import to_ndarray

__all__ = ["Append", "AsList", "Group", "Pad", "Stack"]


class _OnMXNet:
    """A batchify function whose arrays become NDArrays."""

    def __init__(self, batchify: Callable[[Sequence[Any]], Any], use_shared_mem: bool) -> None:
        self._batchify, self._shared = batchify, use_shared_mem

    def __call__(self, data: Sequence[Any]) -> Any:
        # What a worker makes lies in shared memory as it is.
        convert = to_ndarray(self._shared and not in_worker())
        return map_arrays(convert, self._batchify(data))


class Stack(_OnMXNet):
    """Stacks along a new first axis; tuples and lists become a list of the batches of their fields.

    Args:
        use_shared_mem: make the batch in `cpu_shared(0)`; a loader's workers do so by themselves.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        super().__init__(core.Stack(), use_shared_mem)


class Pad(_OnMXNet):
    """Pads arrays of one rank to the largest size along every axis, then stacks them.

    Args:
        val: what to fill with; None is 0.
        dtype: dtype of the batch; None takes the samples' common one.
        round_to: round the padded sizes up to a multiple of this.
        use_shared_mem: make the batch in `cpu_shared(0)`; a loader's workers do so by themselves.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: DTypeLike | None = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
    ) -> None:
        super().__init__(core.Pad(val, dtype, round_to), use_shared_mem)


class Append(_OnMXNet):
    """Keeps a list of arrays, one per sample, of any shape.

    Args:
        expand: give each array an axis of length 1 for the batch.
        batch_axis: where that axis goes.
        use_shared_mem: make the arrays in `cpu_shared(0)`; a loader's workers do so by themselves.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        super().__init__(core.Append(expand, batch_axis), use_shared_mem)
