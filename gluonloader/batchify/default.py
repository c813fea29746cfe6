"""`default_batchify`: the batch that keeps the structure of its samples.

`batch_of` handles the common cases first: tuples, arrays, numbers, text. They need no other module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from ..declared import IN_MEMORY, calls_no_user_code, is_array
from ..errors import BatchifyError
from ..frameworks import Framework, owner, owner_by_base
from ..indices import Indices
from ..memory import empty, empty_of
from ..rows import Rows, copy_rows, pick
from ..segments import Segments
from ..tree import columns, refill
from .arrays import EQUAL, IS_NONE, MASKED, PADDING, Array, as_array, check_same, common_dtype, native

Batchify = Callable[[Sequence[Any]], Any]

_NUMBERS: Final[dict[type, type]] = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}

_AS_ARRAY: Final = {"torch": "torch.as_tensor(x)", "mxnet": "mx.nd.array(x)", "jax": "jax.numpy.asarray(x)"}

LARGE_BYTES: Final = 32 * 1024  # smaller arrays in samples are stacked all at once, which is faster for them


@calls_no_user_code
def default_batchify(samples: Sequence[Any]) -> Any:
    """Makes a batch with the structure of its samples; arrays and numbers are stacked along a new first axis.

    Tuples, lists, dicts, named tuples and dataclasses, also nested ones, keep their type and contain one batch per
    field. Arrays and NumPy scalars keep their dtype, in native byte order. Arrays of MXNet, torch and JAX become a
    batch of the same framework. `bool`, `int`, `float` and `complex` become bool, int64, float64 and complex128. Texts
    become a list.

    Args:
        samples: at least one sample, as a list or as `Rows`, which cost one copy per column. All samples have the same
            structure, and the arrays at each path have the same shape.

    Raises:
        BatchifyError: the samples differ in type, shape, length or keys, or contain a type that cannot be stacked; the
            text names the sample, the path and the difference.

    >>> default_batchify([{"x": np.zeros(2), "name": "a"}, {"x": np.ones(2), "name": "b"}])
    {'x': array([[0., 0.],
           [1., 1.]]), 'name': ['a', 'b']}
    """
    if type(samples) is not list and isinstance(samples, Rows):  # isinstance of an abstract class is slow
        return _batch_of_rows(samples, "")
    return batch_of(samples, "")


def batch_of(samples: Sequence[Any], path: str) -> Any:
    """The batch of the values at `path` in each sample."""
    kinds = set(map(type, samples))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is np.ndarray:
            return stack(samples, path)
        if kind is tuple:
            if len(set(map(len, samples))) > 1:
                check_same(list(map(len, samples)), "{} fields".format, path, EQUAL.format("length"))
            return tuple([batch_of(column, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))])
        if kind is dict:
            return {key: batch_of(column, f"{path}[{key!r}]") for key, column in _columns_of(samples, path)}
        if kind in _NUMBERS:
            return _batch_of_numbers(samples, _NUMBERS[kind], path)
        if kind is str or kind is bytes:
            return list(samples)
        if issubclass(kind, np.generic) and not issubclass(kind, np.void) and samples[0].dtype.kind not in "SUMm":
            return _batch_of_numbers(samples, samples[0].dtype, path)  # texts and times may differ in length or unit
        if (framework := owner(kind)) is not None:
            return _stack_of(framework, samples, path)
    return _batch_by_class(samples, kinds, path)


def stack(arrays: Sequence[Array], path: str) -> Array:
    """Stacks arrays of equal shape along a new first axis. The result lies in memory that `empty` returned."""
    first, shape = arrays[0], arrays[0].shape
    dtype = first.dtype if first.dtype.isnative else native(first.dtype)
    if len(arrays) == 1:
        out = empty_of((1, *shape), dtype)
        out[0] = first
        return out
    if shape and first.size:
        # In memory, a stack is equal to the arrays concatenated along their first axis; np.stack would first make a
        # view of each array. If an array has no axis, or another axis or a dtype differs, which is rare, this raises.
        try:
            if len(set(map(len, arrays))) == 1:
                out = empty_of((len(arrays), *shape), dtype)
                np.concatenate(arrays, out=out.reshape(-1, *shape[1:]), casting="equiv")
                return out
        except (TypeError, ValueError):
            pass
    shapes = [array.shape for array in arrays]
    cure = PADDING if len(set(map(len, shapes))) == 1 else EQUAL.format("shape")
    check_same(shapes, "shape {}".format, path, cure)
    out = empty_of((len(arrays), *shape), common_dtype(arrays, path))
    for row, array in zip(out if shape else out.reshape(-1, 1), arrays, strict=True):
        row[...] = array
    return out


def stack_any(samples: Sequence[Any], path: str) -> Any:
    """Stacks arrays, numbers or lists of numbers; the batch is an array of the framework of the first sample."""
    framework = owner_by_base(type(samples[0]))
    if framework is not None and len(set(map(type, samples))) == 1:
        return _stack_of(framework, samples, path)
    batch = _stack_one_by_one(samples, path)
    return batch if framework is None else framework.from_numpy(batch)


def _stack_of(framework: Framework, arrays: Sequence[Any], path: str) -> Any:
    batch = framework.stack(arrays, empty_of)
    return framework.from_numpy(_stack_one_by_one(arrays, path)) if batch is None else batch


def _stack_one_by_one(samples: Sequence[Any], path: str) -> Array:
    return stack([as_array(sample, None, row, path) for row, sample in enumerate(samples)], path)


def _batch_of_numbers(samples: Sequence[Any], dtype: DTypeLike, path: str) -> Array:
    out = empty(len(samples), dtype)
    try:
        out[:] = samples
    except OverflowError:
        row = next(i for i, number in enumerate(samples) if not -(2**63) <= number < 2**63)
        reason = f"the int {samples[row]} does not fit into int64; return a str, a float or np.uint64"
        raise BatchifyError(reason, row, path) from None
    return out


def _batch_by_class(samples: Sequence[Any], kinds: set[type], path: str) -> Any:
    """The rare cases: subclasses, numbers of several types, lists, mappings, dataclasses, frameworks, and errors."""
    first = samples[0]
    if all(issubclass(kind, (bool, int, float, complex, np.generic, np.ndarray)) for kind in kinds):
        needs_checks = any(issubclass(kind, int) or hasattr(kind, "mask") for kind in kinds)
        for row, sample in enumerate(samples if needs_checks else ()):
            if isinstance(sample, int) and np.asarray(sample).dtype.hasobject:
                raise BatchifyError(f"the int {sample} does not fit into int64 or uint64; return a float", row, path)
            if isinstance(sample, np.ndarray) and hasattr(type(sample), "mask"):  # a recarray may have such a field
                raise BatchifyError(MASKED, row, path)
        return stack([np.asarray(sample) for sample in samples], path)
    if isinstance(first, (str, bytes)) and all(issubclass(kind, (str, bytes)) for kind in kinds):
        return list(samples)
    if type(None) in kinds:
        raise BatchifyError(IS_NONE, next(row for row, sample in enumerate(samples) if sample is None), path)
    # Arrays of several classes are no mistake: a bulk read may return a row of a memory map as a plain array.
    plain = [np.ndarray if isinstance(sample, np.ndarray) else type(sample) for sample in samples]
    check_same(plain, lambda kind: f"type {kind.__name__}", path, _cure_of_types(kinds))
    if isinstance(first, Segments):
        raise BatchifyError("it is a row of several documents; pass batchify_fn=PackRows()", 0, path)
    if isinstance(first, (tuple, list)):
        cure = PADDING if isinstance(first, list) else EQUAL.format("length")
        check_same(list(map(len, samples)), "{} fields".format, path, cure)
    elif isinstance(first, Mapping) and any(sample.keys() != first.keys() for sample in samples):
        raise _different_keys(samples, path)
    fields = columns(samples)
    if fields is not None:
        return refill(first, [batch_of(column, path + step) for step, column in fields])
    if owner_by_base(type(first)) is not None:
        return stack_any(samples, path)
    if isinstance(first, CoroutineType):
        awaited = "a loader awaits the samples of a dataset only if the dataset has an `async def __getitem__`"
        raise BatchifyError(f"cannot make a batch of coroutines, which nobody has awaited; {awaited}", 0, path)
    raise BatchifyError(
        f"cannot make a batch of {type(first).__module__}.{type(first).__qualname__} objects; return arrays, numbers, "
        "str, bytes, or tuples, lists, dicts and dataclasses of them, or pass a batchify_fn: AsList() keeps a list of "
        "anything",
        0,
        path,
    )


def _cure_of_types(kinds: set[type]) -> str:
    """How to make samples of different types equal."""
    names = {framework.name for kind in kinds if (framework := owner_by_base(kind)) is not None}
    examples = [f", e.g. by {_AS_ARRAY[name]}" for name in sorted(names & _AS_ARRAY.keys())]
    return EQUAL.format("type") + "".join(examples[:1])


def _columns_of(samples: Sequence[dict[Any, Any]], path: str) -> list[tuple[Any, list[Any]]]:
    if len(set(map(len, samples))) == 1:
        try:
            return [(key, [sample[key] for sample in samples]) for key in samples[0]]
        except KeyError:
            pass
    raise _different_keys(samples, path)


def _different_keys(samples: Sequence[Mapping[Any, Any]], path: str) -> BatchifyError:
    kinds = [frozenset(sample) for sample in samples]
    most = max(kinds, key=kinds.count)
    keys = samples[kinds.index(most)].keys()
    row, sample = next((row, sample) for row, sample in enumerate(samples) if kinds[row] != most)
    missing, extra = sorted(map(repr, keys - sample.keys())), sorted(map(repr, sample.keys() - keys))
    what = [f"no key {', '.join(missing)}"] * bool(missing) + [f"extra key {', '.join(extra)}"] * bool(extra)
    usual = ", ".join(sorted(map(repr, keys))) or "no keys"
    everywhere = [key for key in keys if all(key in sample for sample in samples)]
    select = f", or select keys by Dict({{{everywhere[0]!r}: Stack()}}) in the batchify_fn" if everywhere else ""
    cure = f"return the same keys from each sample in the dataset{select}"
    return BatchifyError(f"it has {' and '.join(what)}, but other samples have {usual}; {cure}", row, path)


def _batch_of_rows(rows: Rows, path: str) -> Any:
    return rows.map_columns(lambda column, step: _batch_of_column(column, rows.indices, path + step))


def _batch_of_column(column: Any, indices: Indices | None, path: str) -> Any:
    """The batch of one column of `Rows`, equal to what `batch_of` makes of its single elements."""
    # Texts in a column are stacked one by one, because the batch is only as wide as its longest text.
    kinds = "biufcmMSU" if type(column) in IN_MEMORY and column.ndim > 1 else "biufcmM"
    if type(column) not in IN_MEMORY or column.dtype.kind not in kinds:
        if (batch := _batch_of_tensor(column, indices, path)) is not None:
            return batch
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


def _batch_of_tensor(column: Any, indices: Indices | None, path: str) -> Any:
    """The batch of a column that is a tensor, if NumPy has such an array; otherwise None."""
    framework = owner(type(column)) if is_array(column) else None
    values = None if framework is None else framework.to_numpy(column)
    if framework is None or values is None or values.dtype.kind not in "biufc":
        return None
    return framework.from_numpy(_batch_of_column(values, indices, path))


def holds_large_array(sample: Any) -> bool:
    kind = type(sample)
    fields = (sample,) if kind is np.ndarray else sample if kind is tuple else sample.values() if kind is dict else ()
    return any(map(is_large, fields))


def is_large(field: Any) -> bool:
    """Whether `field` is a large array that can be copied into the batch unchanged."""
    large = type(field) is np.ndarray and field.nbytes >= LARGE_BYTES
    return large and field.dtype.kind in "biufcmM" and field.dtype.isnative
