"""torch's `default_collate` and `default_convert`, with large arrays stacked directly in the memory of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from ..batchify import default_batchify
from ..declared import calls_no_user_code
from ..errors import BatchifyError, add_note
from ..frameworks import owner
from ..memory import empty_of
from ..rows import Rows
from .utils_data import collate, torch, worker

_CODES: Final = ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
DTYPES: Final = frozenset(np.dtype(code) for code in _CODES if hasattr(torch, np.dtype(code).name))
_DTYPE_AND_SHAPE: Final = attrgetter("dtype", "shape")
_LEAVES: Final = frozenset({torch.Tensor, np.ndarray, bool, int, float})

_FUNCTIONS: Final = {  # torch's own functions, by type; users change them to collate samples of other types
    torch.Tensor: collate.collate_tensor_fn,
    np.ndarray: collate.collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate.collate_numpy_scalar_fn,
    float: collate.collate_float_fn,
    int: collate.collate_int_fn,
    str: collate.collate_str_fn,
    bytes: collate.collate_str_fn,
}


def own_collate(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`collate_batch` instead of torch's `default_collate`; other functions are returned unchanged."""
    unchanged = collate.default_collate_fn_map == _FUNCTIONS
    return collate_batch if collate_fn is collate.default_collate and unchanged else collate_fn


@calls_no_user_code
def collate_batch(samples: Sequence[Any]) -> Any:
    """The same batch as `default_collate`; but in a worker, NumPy arrays stay NumPy arrays, see `_made`.

    torch's errors do not say which sample differs from the others, so a note says it.
    """
    try:
        return _collated(samples)
    except Exception as error:
        try:
            default_batchify(samples)
        except Exception as reason:
            if isinstance(reason, BatchifyError):  # otherwise code of the samples raised it, as it did before
                add_note(error, f"gluonloader: {reason}")
        raise


def _collated(samples: Sequence[Any]) -> Any:
    if isinstance(samples, Rows):
        if isinstance(samples.held, tuple):
            return [_collated(Rows(column, samples.indices)) for column in samples.held]
        if isinstance(samples.held, np.ndarray) and samples.held.dtype in DTYPES:
            return _made(default_batchify(samples))
        samples = list(samples)
    first = samples[0]
    kind = type(first)
    if kind is dict:
        return {key: _collated([sample[key] for sample in samples]) for key in first}
    if kind is tuple or kind is list:
        if len(set(map(len, samples))) == 1:
            return [_collated(column) for column in zip(*samples, strict=True)]
    elif isinstance(first, tuple) and hasattr(first, "_fields"):  # a named tuple
        return kind(*map(_collated, zip(*samples, strict=False)))
    elif kind is str or kind is bytes:
        return samples
    elif kind in _LEAVES and len(set(map(type, samples))) == 1:
        batch = _stack(kind, samples)
        if batch is not None:
            return batch
    return collate.default_collate(samples)


def _stack(kind: type, samples: Sequence[Any]) -> Any:
    """The batch of tensors, arrays or numbers of one type; None if torch must make it, or must say what is wrong."""
    if kind is torch.Tensor:
        framework = owner(kind)
        assert framework is not None
        return framework.stack(samples, empty_of)
    if kind is np.ndarray and (samples[0].dtype not in DTYPES or len(set(map(_DTYPE_AND_SHAPE, samples))) > 1):
        return None
    try:
        return _made(default_batchify(samples))
    except BatchifyError:  # an int does not fit into int64
        return None


def _made(array: Any) -> Any:
    """An array as a tensor; but a worker sends the array, which is faster, and the program makes the tensor."""
    return torch.from_numpy(array) if worker._worker_info is None else array
