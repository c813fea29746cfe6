"""Samples -> one batch: `default_batchify` and the pieces to build one's own, named as in `gluon.data.batchify`.

A batchify function takes the list of samples and returns the batch. Those here write straight into the batch's own
memory (`gluonloader.empty`) and raise `BatchifyError` with the position and path of a sample that does not fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from typing import NamedTuple as TypingNamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .containers import Indices, Rows, pick, refill
from .declared import gil_free
from .errors import BatchifyError, bad_argument
from .frameworks import owner_by_base
from .memory import empty

__all__ = ["Append", "AsList", "Dict", "Group", "List", "NamedTuple", "Pad", "Stack", "Tuple", "default_batchify"]

Batchify = Callable[[Sequence[Any]], Any]
Array = NDArray[Any]

_shape, _dtype = attrgetter("shape"), attrgetter("dtype")


def _rows(array: Array) -> tuple[int, ...]:
    return array.shape[:1]


_NUMBERS: dict[type, type] = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}


@gil_free
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
    return _batch_of_rows(samples, "") if isinstance(samples, Rows) else _batch(samples, "")


def _batch_of_rows(rows: Rows, path: str) -> Any:
    return rows.gather(lambda column, place: _column(column, rows.indices, path + place))


def _column(column: Any, indices: Indices | None, path: str) -> Any:
    """The batch of one column of `Rows`: just what `_batch` makes of its elements one by one."""
    if isinstance(column, Rows):
        return _batch_of_rows(pick(column, indices), path)
    if type(column) not in (np.ndarray, np.memmap) or not _stacks_as_it_is(column):
        return _batch(list(column if indices is None else pick(column, indices)), path)
    order = column.flags
    simple = order.c_contiguous and order.aligned and column.dtype.isnative  # else np.take would copy all of it first
    if indices is None and simple and order.writeable and type(column) is np.ndarray:
        return column
    count = len(column) if indices is None else len(indices)
    out = empty((count, *column.shape[1:]), _native(column.dtype))
    if indices is not None and simple:
        column.take(indices, 0, out, "clip")  # they are in range; "raise" would buffer `out`
    else:
        out[...] = column if indices is None else column[indices]
    return out


def _stacks_as_it_is(column: Array) -> bool:
    """Whether its elements make an array of its own dtype; text gets as long as a batch's longest, so it does not."""
    kind = column.dtype.kind
    return kind in "biufcmM" or (column.ndim > 1 and kind in "SU")


def _batch(samples: Sequence[Any], path: str) -> Any:
    kinds = set(map(type, samples))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is np.ndarray:
            return _stack(samples, path)
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
        return _stack([np.asarray(sample) for sample in samples], path)
    if isinstance(first, (str, bytes)) and all(issubclass(kind, (str, bytes)) for kind in kinds):
        return list(samples)
    if len(kinds) > 1:
        _differ(list(map(type, samples)), lambda kind: f"type {kind.__name__}", path)
    if isinstance(first, (tuple, list)):
        return refill(first, _columns(samples, path))
    if isinstance(first, Mapping):
        return _mapping(samples, path)
    if dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first)]
        return refill(
            first, {name: _batch([getattr(sample, name) for sample in samples], f"{path}.{name}") for name in names}
        )
    if owner_by_base(type(first)) is not None:
        return _like(first, _stack([_as_array(sample, None, i, path) for i, sample in enumerate(samples)], path))
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
        _differ(lengths, lambda length: f"{length} fields", path)
    return [_batch(column, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))]


def _mapping(samples: Sequence[Mapping[Any, Any]], path: str) -> Any:
    keys = samples[0].keys()
    for position, sample in enumerate(samples):
        if sample.keys() != keys:
            missing, extra = sorted(map(repr, keys - sample.keys())), sorted(map(repr, sample.keys() - keys))
            what = [f"no key {', '.join(missing)}"] * bool(missing) + [f"extra key {', '.join(extra)}"] * bool(extra)
            usual = ", ".join(sorted(map(repr, keys)))
            raise BatchifyError(f"{' and '.join(what)}, others have {usual}", position, path)
    return refill(samples[0], {key: _batch([sample[key] for sample in samples], f"{path}[{key!r}]") for key in keys})


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
        return _stack([np.asarray(sample) for sample in samples], path)
    out = empty(len(samples), dtype)
    out[:] = samples
    return out


def _stack(arrays: Sequence[Array], path: str) -> Array:
    """Stacks arrays of one shape along a new first axis, in the batch's own memory."""
    first, shape = arrays[0], arrays[0].shape
    if len(arrays) == 1:
        out = empty((1, *shape), _native(first.dtype))
        out[0] = first
        return out
    if shape and first.size and len(set(map(_rows, arrays))) == 1:
        # Joined along the first axis the rows are the stack; np.stack would make a view of every array first.
        # Other differences of shape or dtype are rare: NumPy finds them on the way, and they are told below.
        out = empty((len(arrays), *shape), _native(first.dtype))
        try:
            np.concatenate(arrays, out=out.reshape(-1, *shape[1:]), casting="equiv")
            return out
        except (TypeError, ValueError):
            pass
    shapes = list(map(_shape, arrays))
    if shapes.count(shape) != len(shapes):
        _differ(shapes, lambda shape: f"shape {shape}", path)
    out = empty((len(arrays), *shape), _common_dtype(arrays, path))
    for row, array in zip(out if shape else out.reshape(-1, 1), arrays, strict=True):
        row[...] = array
    return out


def _common_dtype(arrays: Sequence[Array], path: str) -> np.dtype[Any]:
    dtypes = set(map(_dtype, arrays))
    try:
        kind: np.dtype[Any] = dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes)
    except TypeError:
        _differ(list(map(_dtype, arrays)), lambda dtype: f"dtype {dtype}", path)
    return _native(kind)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def _differ(values: Sequence[Any], tell: Callable[[Any], str], path: str) -> Any:
    """Raises for the first sample that is not like most of them."""
    usual = max(values, key=values.count)
    position = next(i for i, value in enumerate(values) if value != usual)
    raise BatchifyError(f"{tell(values[position])}, others: {tell(usual)}", position, path)


def _as_array(sample: Any, dtype: DTypeLike | None, position: int, path: str = "") -> Array:
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


def _like(sample: Any, batch: Array) -> Any:
    """The batch as an array of the framework that its samples are of."""
    framework = owner_by_base(type(sample))
    return batch if framework is None else framework.from_numpy(batch)


@gil_free
class Stack:
    """Stacks along a new first axis; tuples and lists become a list of the batches of their fields.

    >>> Stack()([[1, 2], [3, 4]])
    [array([1, 3]), array([2, 4])]
    """

    def __call__(self, samples: Sequence[Any]) -> Any:
        if isinstance(samples[0], (tuple, list)):
            lengths = list(map(len, samples))
            if lengths.count(lengths[0]) != len(lengths):
                _differ(lengths, lambda length: f"{length} fields", "")
            return [on_field(f"[{i}]", self, column) for i, column in enumerate(zip(*samples, strict=True))]
        return _like(samples[0], _stack([_as_array(sample, None, i) for i, sample in enumerate(samples)], ""))


@gil_free
class Pad:
    """Pads arrays of one rank to the largest size, along every axis or one, then stacks them.

    Args:
        val: what to fill with; None is 0.
        dtype: dtype of the batch; None takes the samples' common one. An empty list has none.
        round_to: round the padded sizes up to a multiple of this.
        axis: the only axis of a sample that may differ in size, negative from the last; None pads every axis.
        ret_length: return (batch, lengths): int32, shape (N,), each sample's own size along `axis`, or along the
            first one.

    Raises:
        BatchifyError: a sample does not fit; or the batch's dtype does not hold `val`.

    >>> Pad(val=-1, round_to=4)([[1, 2, 3], [4]])
    array([[ 1,  2,  3, -1],
           [ 4, -1, -1, -1]])
    >>> Pad(ret_length=True)([[1, 2], [3]])
    (array([[1, 2],
           [3, 0]]), array([2, 1], dtype=int32))
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: DTypeLike | None = None,
        round_to: int | None = None,
        *,
        axis: int | None = None,
        ret_length: bool = False,
    ) -> None:
        if round_to is not None and not (_is_int(round_to) and round_to >= 1):
            raise bad_argument("round_to", round_to, "give an int >= 1, or None")
        if axis is not None and not _is_int(axis):
            raise bad_argument("axis", axis, "give the axis of a sample that may differ in size, or None for all")
        try:
            dtype = None if dtype is None else np.dtype(dtype)
        except TypeError as error:
            raise bad_argument("dtype", dtype, f"give a dtype of NumPy, or None ({error})") from None
        if dtype is not None and _filler(val, dtype) is None:
            raise bad_argument("val", val, f"dtype {dtype} does not hold it; give another val or dtype")
        self._val, self._dtype, self._round_to = val, dtype, round_to or 1
        self._axis, self._ret_length = axis, ret_length

    def __call__(self, samples: Sequence[Any]) -> Any:
        arrays = [_as_array(sample, self._dtype, i) for i, sample in enumerate(samples)]
        sizes = self._sizes(list(map(_shape, arrays)))
        dtype = _common_dtype(_with_own_dtype(samples, arrays), "")
        fill = _filler(self._val, dtype)
        if fill is None:
            raise BatchifyError(f"{dtype} does not hold val={self._val!r}; give Pad a dtype=... that does")
        out = empty((len(arrays), *sizes), dtype)
        out[...] = fill
        for row, array in zip(out if sizes else out.reshape(-1, 1), arrays, strict=True):
            row[tuple(map(slice, array.shape))] = array
        if not self._ret_length:
            return _like(samples[0], out)
        lengths = empty(len(arrays), np.int32)
        lengths[:] = [array.shape[self._axis or 0] for array in arrays]
        return _like(samples[0], out), _like(samples[0], lengths)

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """The shape of a padded sample."""
        ranks = list(map(len, shapes))
        if ranks.count(ranks[0]) != len(ranks):
            _differ(ranks, lambda rank: f"{rank} axes", "")
        rank, axis = ranks[0], self._axis
        if (axis is not None or self._ret_length) and not -rank <= (axis or 0) < rank:
            raise BatchifyError(f"it has {rank} axes, so there is no axis {axis or 0} to pad", 0)
        sizes = list(map(max, zip(*shapes, strict=True)))
        for i, size in enumerate(sizes):
            if axis is None or i == axis % rank:
                sizes[i] = -(-size // self._round_to) * self._round_to
            elif any(shape[i] != size for shape in shapes):
                _differ([shape[i] for shape in shapes], f"size {{}} along axis {i}".format, "")
        return sizes


def _filler(val: float | None, dtype: np.dtype[Any]) -> Array | None:
    """`val` in this dtype, shape (); None where it would become another value, rounding aside."""
    if val is None:
        return np.zeros((), dtype)
    value = np.asarray(val)
    fitting = "biufcV" if value.dtype.kind in "biuf" else value.dtype.kind
    if value.ndim or dtype.kind not in fitting:
        return None
    if dtype.names:  # bits that NumPy cannot convert, see `carrier`; those of 0 are 0
        return None if value else np.zeros((), dtype)
    with np.errstate(all="ignore"):  # what they would warn of is found below
        fill = value.astype(dtype)
    rounded = dtype.kind in "fcV" and np.isfinite(fill) and np.isfinite(value)
    return fill if rounded or fill == value or (fill != fill and value != value) else None  # NaN is not itself


def _with_own_dtype(samples: Sequence[Any], arrays: list[Array]) -> list[Array]:
    """The arrays, but for those of empty lists one that has a dtype: NumPy's float64 for them means nothing."""
    vague = {i for i, array in enumerate(arrays) if not array.size and isinstance(samples[i], (list, tuple))}
    if not vague or len(vague) == len(arrays):
        return arrays
    known = next(array for i, array in enumerate(arrays) if i not in vague)
    return [known if i in vague else array for i, array in enumerate(arrays)]


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@gil_free
class Append:
    """Keeps a list of arrays, one per sample, of any shape.

    Args:
        expand: give each array an axis of length 1 for the batch.
        batch_axis: where that axis goes.

    >>> [array.shape for array in Append()([np.zeros(2), np.zeros((3, 4))])]
    [(1, 2), (1, 3, 4)]
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0) -> None:
        self._expand, self._axis = expand, batch_axis

    def __call__(self, samples: Sequence[Any]) -> list[Array]:
        arrays = [_as_array(sample, None, i) for i, sample in enumerate(samples)]
        batch = [np.expand_dims(array, self._axis) for array in arrays] if self._expand else arrays
        return [_like(samples[0], array) for array in batch]


class Group:
    """A batchify for each field of a tuple; the batch is a tuple.

    Args:
        fn: the batchify for the first field, or a list of all of them.
        args: those for the other fields.

    >>> Group(Stack(), AsList())([(1, "a"), (2, "b")])
    (array([1, 2]), ['a', 'b'])
    """

    def __init__(self, fn: Batchify | Sequence[Batchify], *args: Batchify) -> None:
        if not callable(fn) and not isinstance(fn, Sequence):
            raise bad_argument("fn", fn, "give a function, or a list of functions")
        self._fns: tuple[Batchify, ...] = (fn, *args) if callable(fn) else (*fn, *args)
        _check_callable("fn", self._fns)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._fns

    def __call__(self, samples: Sequence[Any]) -> tuple[Any, ...]:
        for position, sample in enumerate(samples):
            if len(sample) != len(self._fns):
                raise BatchifyError(f"{len(sample)} fields, but Group has {len(self._fns)} functions", position)
        columns = zip(*samples, strict=True)
        return tuple(
            on_field(f"[{i}]", fn, column) for i, (fn, column) in enumerate(zip(self._fns, columns, strict=True))
        )


@gil_free
class AsList:
    """Keeps the samples as a list, whatever they are.

    >>> AsList()(["a", None])
    ['a', None]
    """

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        return list(samples)


Tuple, List = Group, AsList  # their names in GluonNLP


class Dict:
    """A batchify for each key of a dict; the batch has just these keys.

    >>> Dict({"x": Stack()})([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': array([1, 2])}
    """

    def __init__(self, fns: Mapping[Any, Batchify]) -> None:
        if not isinstance(fns, Mapping):
            raise bad_argument("fns", fns, "give a dict from key to batchify function")
        self._fns = dict(fns)
        _check_callable("fns", self._fns.values())

    @property
    def _parts(self) -> tuple[Any, ...]:
        return tuple(self._fns.values())

    def __call__(self, samples: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
        for position, sample in enumerate(samples):
            missing = self._fns.keys() - sample.keys()
            if missing:
                raise BatchifyError(f"no key {', '.join(sorted(map(repr, missing)))}", position)
        return {key: on_field(f"[{key!r}]", fn, [sample[key] for sample in samples]) for key, fn in self._fns.items()}


class NamedTuple:
    """A batchify for each field of a named tuple; the batch is one, too.

    Args:
        container: the named tuple's class.
        fns: a function per field, as a list in the order of fields or as a dict by name.

    >>> Point = TypingNamedTuple("Point", [("x", int), ("y", int)])
    >>> NamedTuple(Point, [Stack(), AsList()])([Point(1, 2), Point(3, 4)])
    Point(x=array([1, 3]), y=[2, 4])
    """

    def __init__(self, container: type[Any], fns: Mapping[str, Batchify] | Sequence[Batchify]) -> None:
        fields: tuple[str, ...] = getattr(container, "_fields", ())
        if not isinstance(fns, (Mapping, Sequence)):
            raise bad_argument("fns", fns, "give a list or a dict of functions")
        named = dict(fns) if isinstance(fns, Mapping) else dict(zip(fields, fns, strict=False))
        if set(named) != set(fields) or len(fns) != len(fields) or not fields:
            raise bad_argument("fns", fns, f"give one function for each field of {container.__name__}: {fields}")
        self._container, self._fns = container, [named[field] for field in fields]
        _check_callable("fns", self._fns)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return tuple(self._fns)

    def __call__(self, samples: Sequence[Any]) -> Any:
        for position, sample in enumerate(samples):
            if not isinstance(sample, self._container):
                raise BatchifyError(f"a {type(sample).__name__}, not a {self._container.__name__}", position)
        columns = zip(self._container._fields, self._fns, zip(*samples, strict=True), strict=True)
        return self._container(*[on_field(f".{field}", fn, column) for field, fn, column in columns])


def on_field(path: str, fn: Batchify, samples: Sequence[Any]) -> Any:
    """Runs `fn` on one field; an error of ours says in which."""
    try:
        return fn(samples)
    except BatchifyError as error:
        raise BatchifyError(error.reason, error.position, path + error.path) from error.__cause__


def _check_callable(name: str, fns: Any) -> None:
    for fn in fns:
        if not callable(fn):
            raise bad_argument(name, fn, "give functions from a list of samples to a batch, e.g. Stack()")
