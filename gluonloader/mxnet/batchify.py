"""Gluon 2.0's `mxnet.gluon.data.batchify`: the functions of `gluonloader.batchify`, which here return NDArrays.

In a worker the NDArrays refer to the shared memory of the batch, so they reach the main program without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike

from .. import batchify as core
from ..batchify import AsList
from ..describe import short_repr
from ..frameworks import in_worker, map_arrays
from .gluon import to_ndarray

__all__ = ["Append", "AsList", "Group", "Pad", "Stack"]


class _WithNDArrays:
    """A batchify function whose arrays become NDArrays."""

    def __init__(self, batchify: Callable[[Sequence[Any]], Any], use_shared_mem: bool) -> None:
        self._batchify, self._shared = batchify, use_shared_mem

    def __call__(self, data: Sequence[Any]) -> Any:
        # In a worker, batches lie in shared memory anyway.
        convert = to_ndarray(self._shared and not in_worker())
        return map_arrays(convert, self._batchify(data))

    def __mx_handle__(self) -> _WithNDArrays:
        """Returns the function itself, which can be called like the handle of a batchify function in Gluon 2.0."""
        return self

    @short_repr
    def __repr__(self) -> str:
        return repr(self._batchify)


class Stack(_WithNDArrays):
    """Stacks samples along a new first axis; if samples are tuples or lists, returns a list with one batch per field.

    Args:
        use_shared_mem: make the batch in `cpu_shared(0)`; workers of a loader always do.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        super().__init__(core.Stack(), use_shared_mem)


class Pad(_WithNDArrays):
    """Pads arrays of the same rank to the largest size along every axis, then stacks them.

    Args:
        val: the padding value; None means 0.
        dtype: dtype of the batch; None means the common dtype of the samples.
        round_to: round the padded sizes up to a multiple of this number.
        use_shared_mem: make the batch in `cpu_shared(0)`; workers of a loader always do.
        axis, ret_length, mask: as for `gluonloader.Pad`. Gluon does not have these arguments.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: DTypeLike | None = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
        *,
        axis: int | None = None,
        ret_length: bool = False,
        mask: bool = False,
    ) -> None:
        padding = core.Pad(val, dtype, round_to, axis=axis, ret_length=ret_length, mask=mask)
        super().__init__(padding, use_shared_mem)


class Append(_WithNDArrays):
    """Returns a list of arrays, one for each sample; the arrays may have different shapes.

    Args:
        expand: whether to insert a batch axis of length 1 into each array.
        batch_axis: where to insert the batch axis.
        use_shared_mem: make the arrays in `cpu_shared(0)`; workers of a loader always do.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        super().__init__(core.Append(expand, batch_axis), use_shared_mem)


class Group(core.Group):
    """Applies a batchify function to each field of a tuple; the batch is a tuple."""

    def __mx_handle__(self) -> Group:
        """Returns the function itself, as `Stack` does."""
        return self
