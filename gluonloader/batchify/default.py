"""`default_batchify`: the batch that keeps the structure of its samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..declared import IN_MEMORY, calls_no_user_code
from ..errors import BatchifyError
from ..frameworks import owner_by_base
from ..indices import Indices
from ..memory import empty, empty_of
from ..rows import Rows, copy_rows, pick
from ..tree import refill

__all__ = [
    "Array",
    "Batchify",
    "as_array",
    "batch_of",
    "common_dtype",
    "default_batchify",
    "differ",
    "like",
    "native",
    "stack",
]

Batchify = Callable[[Sequence[Any]], Any]
Array = NDArray[Any]

_shape, _dtype = attrgetter("shape"), attrgetter("dtype")


def _rows(array: Array) -> tuple[int, ...]:
    return array.shape[:1]


_NUMBERS: dict[type, type] = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}


@calls_no_user_code
def default_batchify(samples: Sequence[Any]) -> Any:
    """The batch that keeps the structure of its samples, with arrays and numbers stacked along a new first axis.

    Tuples, lists, dicts, named tuples and dataclasses stay what they are, nested as they come, and hold one batch
    per field. Arrays and NumPy scalars keep their dtype, in native byte order. Arrays of MXNet, torch and JAX become
    a batch of the same framework. `bool`, `int`, `float` and `complex` become bool, int64, float64 and complex128.
    `str` and `bytes` stay a list.

    Args:
        samples: at least one sample; all of one structure, arrays at the same place of one shape. For `Rows` the cost
            is one copy for each column.

    Raises:
        BatchifyError: samples differ in type, shape, length or keys, or hold a type that cannot be stacked; the
            text names sample, path and difference.

    >>> default_batchify([{"x": np.zeros(2), "name": "a"}, {"x": np.ones(2), "name": "b"}])
    {'x': array([[0., 0.],
           [1., 1.]]), 'name': ['a', 'b']}
    """
    if type(samples) is not list and isinstance(samples, Rows):  # to ask an abstract class takes longer
        return _batch_of_rows(samples, "")
    return batch_of(samples, "")


def _batch_of_rows(rows: Rows, path: str) -> Any:
    return rows.gather(lambda column, place: _column(column, rows.indices, path + place))


def _column(column: Any, indices: Indices | None, path: str) -> Any:
    """The batch of one column of `Rows`: just what `batch_of` makes of its elements one by one."""
    if type(column) not in IN_MEMORY or not _stacks_as_it_is(column):
        samples = pick(column, indices)
        if isinstance(samples, Rows):
            return _batch_of_rows(samples, path)
        return batch_of(samples if type(samples) is list else list(samples), path)
    if indices is None and type(column) is np.ndarray and column.flags.carray and column.dtype.isnative:
        return column
    count = len(column) if indices is None else len(indices)
    out = empty_of((count, *column.shape[1:]), native(column.dtype))
    copy_rows(column, indices, out)
    return out


def _stacks_as_it_is(column: Array) -> bool:
    """Whether its elements make an array of its own dtype; text gets as long as a batch's longest, so it does not."""
    kind = column.dtype.kind
    return kind in "biufcmM" or (column.ndim > 1 and kind in "SU")


def batch_of(samples: Sequence[Any], path: str) -> Any:
    """The batch of what lies at `path` in each sample."""
    kinds = set(map(type, samples))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is np.ndarray:
            return stack(samples, path)
        if kind is tuple:
            return tuple(_columns(samples, path))
        if kind in _NUMBERS:
            return _numbers(samples, _NUMBERS[kind], path)
        if kind is str or kind is bytes:
            return list(samples)
        if issubclass(kind, np.generic) and kind is not np.void:
            return _scalars(samples, path)
    return _batch_by_class(samples, kinds, path)


def _batch_by_class(samples: Sequence[Any], kinds: set[type], path: str) -> Any:
    """Everything but the common cases above: subclasses, mixed numbers, mappings, dataclasses, and errors."""
    first = samples[0]
    if all(issubclass(kind, (bool, int, float, complex, np.generic, np.ndarray)) for kind in kinds):
        for position, sample in enumerate(samples):
            if isinstance(sample, int) and np.asarray(sample).dtype.hasobject:
                raise BatchifyError(f"the int {sample} does not fit int64 or uint64", position, path)
        return stack([np.asarray(sample) for sample in samples], path)
    if isinstance(first, (str, bytes)) and all(issubclass(kind, (str, bytes)) for kind in kinds):
        return list(samples)
    if len(kinds) > 1:
        differ(list(map(type, samples)), lambda kind: f"type {kind.__name__}", path)
    if isinstance(first, (tuple, list)):
        return refill(first, _columns(samples, path))
    if isinstance(first, Mapping):
        return _mapping(samples, path)
    if dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first)]
        return refill(
            first, [batch_of([getattr(sample, name) for sample in samples], f"{path}.{name}") for name in names]
        )
    if owner_by_base(type(first)) is not None:
        return like(first, stack([as_array(sample, None, i, path) for i, sample in enumerate(samples)], path))
    raise BatchifyError(
        f"cannot make a batch of {type(first).__module__}.{type(first).__qualname__} objects; return arrays, numbers, "
        "str, bytes, or tuples, lists, dicts and dataclasses of them, or pass a batchify_fn: AsList() keeps a list of "
        "anything",
        0,
        path,
    )


def _columns(samples: Sequence[Any], path: str) -> list[Any]:
    lengths = list(map(len, samples))
    if lengths.count(lengths[0]) != len(lengths):
        differ(lengths, lambda length: f"{length} fields", path)
    return [batch_of(column, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))]


def _mapping(samples: Sequence[Mapping[Any, Any]], path: str) -> Any:
    keys = samples[0].keys()
    for position, sample in enumerate(samples):
        if sample.keys() != keys:
            missing, extra = sorted(map(repr, keys - sample.keys())), sorted(map(repr, sample.keys() - keys))
            what = [f"no key {', '.join(missing)}"] * bool(missing) + [f"extra key {', '.join(extra)}"] * bool(extra)
            usual = ", ".join(sorted(map(repr, keys)))
            raise BatchifyError(f"{' and '.join(what)}, others have {usual}", position, path)
    return refill(samples[0], [batch_of([sample[key] for sample in samples], f"{path}[{key!r}]") for key in keys])


def _numbers(samples: Sequence[Any], dtype: type, path: str) -> Array:
    out = empty(len(samples), dtype)
    try:
        out[:] = samples
    except OverflowError:
        position = next(i for i, x in enumerate(samples) if not -(2**63) <= x < 2**63)
        raise BatchifyError(
            f"the int {samples[position]} does not fit int64; return a str, a float or np.uint64", position, path
        ) from None
    return out


def _scalars(samples: Sequence[Any], path: str) -> Array:
    dtype = samples[0].dtype
    if dtype.kind in "SUMm":  # lengths and units differ between values of one type
        return stack([np.asarray(sample) for sample in samples], path)
    out = empty(len(samples), dtype)
    out[:] = samples
    return out


def stack(arrays: Sequence[Array], path: str) -> Array:
    """Stacks arrays of one shape along a new first axis, in the batch's own memory."""
    first, shape = arrays[0], arrays[0].shape
    if len(arrays) == 1:
        out = empty_of((1, *shape), native(first.dtype))
        out[0] = first
        return out
    if shape and first.size and len(set(map(_rows, arrays))) == 1:
        # Joined along the first axis the rows are the stack; np.stack would make a view of every array first.
        # Other differences of shape or dtype are rare: NumPy finds them on the way, and they are told below.
        out = empty_of((len(arrays), *shape), native(first.dtype))
        try:
            np.concatenate(arrays, out=out.reshape(-1, *shape[1:]), casting="equiv")
            return out
        except (TypeError, ValueError):
            pass
    shapes = list(map(_shape, arrays))
    if shapes.count(shape) != len(shapes):
        differ(shapes, lambda shape: f"shape {shape}", path)
    out = empty_of((len(arrays), *shape), common_dtype(arrays, path))
    for row, array in zip(out if shape else out.reshape(-1, 1), arrays, strict=True):
        row[...] = array
    return out


def common_dtype(arrays: Sequence[Array], path: str) -> np.dtype[Any]:
    """The dtype of a stack of these arrays, in this machine's byte order."""
    dtypes = set(map(_dtype, arrays))
    try:
        kind: np.dtype[Any] = dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes)
    except TypeError:
        differ(list(map(_dtype, arrays)), lambda dtype: f"dtype {dtype}", path)
    return native(kind)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same dtype in this machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def differ(values: Sequence[Any], tell: Callable[[Any], str], path: str) -> Any:
    """Raises for the first sample that is not like most of them."""
    usual = max(values, key=values.count)
    position = next(i for i, value in enumerate(values) if value != usual)
    raise BatchifyError(f"{tell(values[position])}, others: {tell(usual)}", position, path)


def as_array(sample: Any, dtype: DTypeLike | None, position: int, path: str = "") -> Array:
    """A sample as a NumPy array, one of another framework by its memory."""
    if type(sample) is not np.ndarray and (framework := owner_by_base(type(sample))) is not None:
        name, sample = type(sample).__qualname__, framework.to_numpy(sample)
        if sample is None:
            what = f"a {name} that is sparse, has a gradient or lies on a device; return a dense one in host memory"
            raise BatchifyError(f"cannot make a batch of {what}", position, path)
        if dtype is not None and sample.dtype.names:  # NumPy would convert its bits
            what = f"NumPy has no {sample.dtype.names[0]}; convert it in the dataset, or import ml_dtypes"
            raise BatchifyError(f"cannot convert a {name} to {np.dtype(dtype)}: {what}", position, path)
    try:
        array = np.asarray(sample, dtype)
    except (ValueError, TypeError) as error:
        raise BatchifyError(f"not an array ({error})", position, path) from None
    if array.dtype.hasobject:
        raise BatchifyError(f"not an array of numbers: {type(sample).__name__}", position, path)
    return array


def like(sample: Any, batch: Array) -> Any:
    """The batch as an array of the framework that its samples are of."""
    framework = owner_by_base(type(sample))
    return batch if framework is None else framework.from_numpy(batch)
