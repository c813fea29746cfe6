"""Helpers of batchify functions for single arrays: conversion to NumPy and back, dtypes, and errors about samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import BatchifyError, a_class
from ..frameworks import owner_by_base

Array = NDArray[Any]

PADDING: Final = "; make the samples equal in size in the dataset, or pad them with Pad() in the batchify_fn"
EQUAL: Final = "; make the samples equal in {} in the dataset"
IS_NONE: Final = (
    "it is None, which cannot be stacked (is a `return` missing in the dataset or a transform?); remove such samples "
    "from the dataset, return a placeholder, or pass a batchify_fn that drops None"
)

MASKED: Final = "it is a masked array, whose mask would be lost; return its data and its mask, or array.filled(value)"
IS_NESTED: Final = (
    "it is a nested tensor, which cannot be stacked; return plain tensors, and pass "
    "batchify_fn=torch.nested.nested_tensor to make a nested tensor of them; or return "
    "torch.nested.to_padded_tensor(x, 0); or pass batchify_fn=AsList() to get a list of nested tensors"
)


def as_array(sample: Any, dtype: DTypeLike | None, row: int, path: str = "") -> Array:
    """The array, number or list of numbers at `path` in sample `row` as a NumPy array, without a copy if possible."""
    if type(sample) is not np.ndarray and (framework := owner_by_base(type(sample))) is not None:
        given, sample = sample, framework.to_numpy(sample)
        if sample is None:
            raise BatchifyError(_no_plain_array(given), row, path)
        if dtype is not None and sample.dtype.names:  # a carrier: NumPy would convert its bits
            what = f"NumPy has no {sample.dtype.names[0]}; convert it in the dataset, or import ml_dtypes"
            raise BatchifyError(f"cannot convert {a_class(given)} to {np.dtype(dtype)}: {what}", row, path)
    try:
        array = np.asarray(sample, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise BatchifyError(_no_array(sample, f" ({error})"), row, path) from None
    if array.dtype.hasobject:
        raise BatchifyError(_no_array(sample, ""), row, path)
    if isinstance(sample, np.ma.MaskedArray):
        raise BatchifyError(MASKED, row, path)
    return array


def _no_plain_array(tensor: Any) -> str:
    """What to do about an array of a framework that cannot become one of NumPy."""
    if getattr(tensor, "is_nested", False):
        return IS_NESTED
    if getattr(tensor, "requires_grad", False):
        return f"cannot make a batch of {a_class(tensor)} that requires a gradient; return x.detach()"
    what = f"{a_class(tensor)} that is sparse or quantized, has a gradient or is on a device"
    return f"cannot make a batch of {what}; return a dense array in host memory"


def _no_array(sample: Any, why: str) -> str:
    if sample is None:
        return IS_NONE
    if isinstance(sample, tuple):
        why = f"; use one batchify function for each of its {len(sample)} fields, e.g. Group(Pad(), Stack())"
    elif isinstance(sample, Mapping):
        why = f"; use one batchify function for each key, e.g. Dict({{{next(iter(sample), 'x')!r}: Stack(), ...}})"
    return f"{a_class(sample)} cannot be converted to an array of numbers{why}"


def misfit(arrays: Sequence[Array], dtype: np.dtype[Any]) -> tuple[int, Any] | None:
    """The number of the first array with an int that a dtype of ints cannot represent, and this int; None if all fit.

    NumPy would keep only the lowest bits. The arrays are of ints or bools.
    """
    if all(np.can_cast(kind, dtype) for kind in {array.dtype for array in arrays}):
        return None
    limits, joined = np.iinfo(dtype), np.concatenate(arrays, axis=None)
    exact = joined.dtype.kind != "f"  # int64 with uint64 becomes float64
    if not joined.size or (exact and int(joined.min()) >= limits.min and int(joined.max()) <= limits.max):
        return None
    for number, array in enumerate(arrays):
        if len(wrong := array[(array < limits.min) | (array > limits.max)]):
            return number, wrong[0]
    return None


def check_types(samples: Sequence[Any], fits: Callable[[type], bool], needed: str) -> None:
    """Checks that the types of all samples fit the batchify function; `needed` says what the function needs."""
    if not all(map(fits, set(map(type, samples)))):
        row, wrong = next((row, type(sample)) for row, sample in enumerate(samples) if not fits(type(sample)))
        raise BatchifyError(IS_NONE if wrong is type(None) else f"it has type {wrong.__name__}, but {needed}", row)


def unconverted(sample: Any) -> Array:
    """A sample that `as_array` accepts, as a NumPy array of its own dtype."""
    framework = owner_by_base(type(sample))
    return np.asarray(sample if framework is None else framework.to_numpy(sample))


def like(sample: Any, batch: Array) -> Any:
    framework = owner_by_base(type(sample))
    return batch if framework is None else framework.from_numpy(batch)


def common_dtype(arrays: Sequence[Array], path: str) -> np.dtype[Any]:
    """The dtype of a stack of these arrays, in native byte order."""
    dtypes = [array.dtype for array in arrays]
    try:
        common = native(dtypes[0] if len(set(dtypes)) == 1 else np.result_type(*dtypes))
    except TypeError:  # NumPy has no common dtype for them
        check_same(dtypes, "dtype {}".format, path, EQUAL.format("dtype"))
        raise
    kinds = {dtype.kind for dtype in dtypes}
    loses_digits = common.kind == "f" and kinds <= {"i", "u"}  # uint64 with int64
    mixes = len(kinds) > 1 and common.kind in "SUMm"  # numbers that would become text or times
    if loses_digits or mixes or (common.kind in "Mm" and not all(_fits(array, common) for array in arrays)):
        check_same([native(dtype) for dtype in dtypes], "dtype {}".format, path, EQUAL.format("dtype"))
    return common


def _fits(times: Array, dtype: np.dtype[Any]) -> bool:
    """Whether times are the same in another unit. If they are too large for it, NumPy before 2.5 lets them overflow."""
    if times.dtype == dtype:
        return True
    try:
        again = times.astype(dtype).astype(times.dtype)
    except OverflowError:
        return False
    return bool(np.array_equal(again, times, equal_nan=True))


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def check_same(values: Sequence[Any], describe: Callable[[Any], str], path: str, cure: str = "") -> None:
    """Checks that the values of all samples are equal; the error names the first sample that differs from most."""
    if values.count(values[0]) != len(values):
        usual = max(values, key=values.count)
        row = next(i for i, value in enumerate(values) if value != usual)
        what = f"it has {describe(values[row])}, but other samples have {describe(usual)}"
        raise BatchifyError(what + cure, row, path)
