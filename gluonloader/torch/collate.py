"""torch's `default_collate` and `default_convert`, with large arrays stacked directly in the memory of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..batchify import default_batchify
from ..declared import calls_no_user_code
from ..rows import Rows
from .utils_data import collate, torch

_DTYPES: Final = frozenset(map(np.dtype, ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")))

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
    """The same batch as `default_collate`, except that NumPy arrays stay NumPy arrays until the batch is delivered."""
    if isinstance(samples, Rows):
        if isinstance(samples.held, tuple):
            return [collate_batch(Rows(column, samples.indices)) for column in samples.held]
        if isinstance(samples.held, np.ndarray) and samples.held.dtype in _DTYPES:
            return default_batchify(samples)
        samples = list(samples)
    first = samples[0]
    kind = type(first)
    if kind is dict:
        return {key: collate_batch([sample[key] for sample in samples]) for key in first}
    if kind is tuple or kind is list:
        if all(len(sample) == len(first) for sample in samples):
            return [collate_batch(column) for column in zip(*samples, strict=True)]
    elif isinstance(first, tuple) and hasattr(first, "_fields"):  # a named tuple
        return kind(*map(collate_batch, zip(*samples, strict=False)))
    elif kind is float:
        return torch.tensor(samples, dtype=torch.float64)
    elif kind is int or kind is bool:
        return torch.tensor(samples)
    elif kind is str or kind is bytes:
        return samples
    elif (kind is torch.Tensor and _are_plain_tensors(samples)) or (kind is np.ndarray and _are_plain_arrays(samples)):
        return default_batchify(samples)
    return collate.default_collate(samples)


def _are_plain_tensors(tensors: Sequence[Any]) -> bool:
    """Whether `torch.stack` only copies them."""
    first = tensors[0]
    if first.layout is not torch.strided or first.is_nested or first.is_quantized or first.device.type != "cpu":
        return False
    if first.dtype is torch.complex32:  # NumPy has none
        return False
    shape, dtype = first.shape, first.dtype
    return all(
        type(tensor) is torch.Tensor
        and tensor.shape == shape
        and tensor.dtype is dtype
        and not tensor.requires_grad
        and tensor.layout is torch.strided
        for tensor in tensors
    )


def _are_plain_arrays(arrays: Sequence[Any]) -> bool:
    """Whether torch has their dtype, and all have the same dtype and shape."""
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if dtype not in _DTYPES:
        return False
    return all(type(array) is np.ndarray and array.shape == shape and array.dtype == dtype for array in arrays)
