"""Batchify functions with the names of `gluon.data.batchify`; a sample with several fields needs one for each field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any
from typing import NamedTuple as TypingNamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..checks import as_dtype, check_flags, check_function, check_functions, check_int
from ..describe import arguments, call, describe, short_repr
from ..errors import BatchifyError, bad_argument
from ..memory import empty
from .arrays import EQUAL, Array, as_array, check_same, check_types, common_dtype, like, misfit, unconverted
from .default import Batchify, default_batchify, stack, stack_any


class Stack:
    """Stacks samples along a new first axis; if samples are tuples or lists, returns a list with one batch per field.

    >>> Stack()([[1, 2], [3, 4]])
    [array([1, 3]), array([2, 4])]
    """

    _parts = ()
    __repr__ = short_repr(call)

    def __call__(self, samples: Sequence[Any]) -> Any:
        samples = list(samples)  # `Rows` make a new object at each access
        if isinstance(samples[0], (tuple, list)):
            check_types(samples, lambda kind: hasattr(kind, "__len__"), "other samples are tuples or lists")
            check_same(list(map(len, samples)), "{} fields".format, "", EQUAL.format("length"))
            return [on_field(f"[{i}]", self, column) for i, column in enumerate(zip(*samples, strict=True))]
        return stack_any(samples, "")


class Pad:
    """Pads arrays to the largest size and stacks them; all arrays must have the same number of axes.

    Args:
        val: the value to fill with; None means 0.
        dtype: dtype of the batch; None means the common dtype of all samples except empty lists.
        round_to: round the padded sizes up to a multiple of this number.
        axis: the only axis of a sample that is padded; the sizes of all other axes must be equal. Negative axes count
            from the last. None pads every axis.
        ret_length: return (batch, lengths). The lengths are int32 of shape (N,): the size of each sample along `axis`,
            or along the first axis if `axis` is None.
        mask: also return a bool array that is True where the batch contains data, and False where it contains padding:
            (batch, mask), or (batch, lengths, mask). If `axis` is passed, the shape of the mask is (N, padded size of
            that axis); otherwise it is the shape of the batch. torch's `key_padding_mask` is `~mask`.

    Raises:
        BatchifyError: a sample cannot be padded to the common shape, the dtype of the batch cannot represent `val`, or
            an int does not fit in `dtype`.

    >>> Pad(val=-1, round_to=4)([[1, 2, 3], [4]])
    array([[ 1,  2,  3, -1],
           [ 4, -1, -1, -1]])
    >>> Pad(ret_length=True)([[1, 2], [3]])
    (array([[1, 2],
           [3, 0]]), array([2, 1], dtype=int32))
    >>> Pad(mask=True)([[1, 2], [3]])
    (array([[1, 2],
           [3, 0]]), array([[ True,  True],
           [ True, False]]))
    """

    _parts = ()

    def __init__(
        self,
        val: float | None = None,
        dtype: DTypeLike | None = None,
        round_to: int | None = None,
        *,
        axis: int | None = None,
        ret_length: bool = False,
        mask: bool = False,
    ) -> None:
        check_flags(ret_length=ret_length, mask=mask)
        if round_to is not None:
            check_int("round_to", round_to, 1, "must be an int >= 1, or None")
        if axis is not None:
            check_int("axis", axis, None, "pass the axis of a sample that may differ in size, or None for all axes")
        dtype = None if dtype is None else as_dtype(dtype, "must be a dtype of NumPy, e.g. 'float32', or None")
        if dtype is not None and _filler(val, dtype) is None:
            raise bad_argument("val", val, f"dtype={dtype} cannot represent it; pass another val or dtype")
        self._val, self._dtype, self._round_to = val, dtype, round_to or 1
        self._axis, self._ret_length, self._mask = axis, bool(ret_length), bool(mask)

    def __call__(self, samples: Sequence[Any]) -> Any:
        arrays = [as_array(sample, self._dtype, i) for i, sample in enumerate(samples)]
        self._check_ints(samples)
        sizes = self._sizes([array.shape for array in arrays])
        dtype = common_dtype(_with_own_dtype(samples, arrays), "")
        fill = _filler(self._val, dtype)
        if fill is None:
            raise BatchifyError(f"dtype {dtype} cannot represent val={self._val!r}; pass another val or dtype to Pad")
        out = empty((len(arrays), *sizes), dtype)
        out[...] = fill
        for row, array in zip(out if sizes else out.reshape(-1, 1), arrays, strict=True):
            row[tuple(map(slice, array.shape))] = array
        results = [out]
        if self._ret_length:
            lengths = empty(len(arrays), np.int32)
            lengths[:] = [array.shape[self._axis or 0] for array in arrays]
            results.append(lengths)
        if self._mask:
            results.append(self._mask_of([array.shape for array in arrays], sizes))
        batch = tuple([like(samples[0], result) for result in results])
        return batch if len(batch) > 1 else batch[0]

    @short_repr
    def __repr__(self) -> str:
        dtype, round_to = self._dtype and str(self._dtype), None if self._round_to == 1 else self._round_to
        flags = {"ret_length": self._ret_length or None, "mask": self._mask or None}
        return call(self, *arguments(val=self._val, dtype=dtype, round_to=round_to, axis=self._axis, **flags))

    def _check_ints(self, samples: Sequence[Any]) -> None:
        if self._dtype is None or self._dtype.kind not in "iu":
            return
        ints = [(row, array) for row, array in enumerate(map(unconverted, samples)) if array.dtype.kind in "iu"]
        if (found := misfit([array for _, array in ints], self._dtype)) is not None:
            number, value = found
            raise BatchifyError(f"{value} does not fit in dtype={self._dtype}; pass another dtype", ints[number][0])

    def _mask_of(self, shapes: Sequence[tuple[int, ...]], sizes: list[int]) -> Array:
        axes = slice(None) if self._axis is None else slice(self._axis, self._axis + 1 or None)
        mask = empty((len(shapes), *sizes[axes]), np.bool_)
        mask[...] = False
        for row, shape in enumerate(shapes):
            index: list[Any] = [row, *map(slice, shape[axes])]
            mask[tuple(index)] = True
        return mask

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        ranks = list(map(len, shapes))
        check_same(ranks, "{} axes".format, "", EQUAL.format("number of axes"))
        rank, axis = ranks[0], self._axis
        if (axis is not None or self._ret_length) and not -rank <= (axis or 0) < rank:
            raise BatchifyError(f"it has {rank} axes, so there is no axis {axis or 0} to pad", 0)
        sizes = list(map(max, zip(*shapes, strict=True)))
        for i, size in enumerate(sizes):
            if axis is None or i == axis % rank:
                sizes[i] = -(-size // self._round_to) * self._round_to
            else:
                cure = f"; make the samples equal in size along axis {i} in the dataset, or pass axis=None to Pad"
                check_same([shape[i] for shape in shapes], f"size {{}} along axis {i}".format, "", cure)
        return sizes


def _filler(val: float | None, dtype: np.dtype[Any]) -> Array | None:
    """`val` (rounded if necessary) as an array of this dtype, shape (); None if the dtype cannot represent `val`."""
    if val is None:
        return np.zeros((), dtype)
    value = np.asarray(val)
    fitting = "biufcV" if value.dtype.kind in "biuf" else value.dtype.kind
    if value.ndim or dtype.kind not in fitting:
        return None
    if dtype.names:  # a framework's dtype whose bits NumPy cannot convert, see `carrier`; the bits of 0 are 0
        return None if value else np.zeros((), dtype)
    with np.errstate(all="ignore"):  # an overflow is found below
        fill = value.astype(dtype)
    rounded = dtype.kind in "fcV" and np.isfinite(fill) and np.isfinite(value)
    both_nan = fill != fill and value != value
    return fill if rounded or fill == value or both_nan else None


def _with_own_dtype(samples: Sequence[Any], arrays: list[Array]) -> list[Array]:
    """The arrays, except those of empty lists, which are float64 only because NumPy has no dtype for an empty list."""
    pairs = zip(samples, arrays, strict=True)
    return [array for sample, array in pairs if array.size or not isinstance(sample, (list, tuple))] or arrays


class Append:
    """Returns a list of arrays, one for each sample, which are copies; they may have different shapes.

    Args:
        expand: whether to insert a batch axis of length 1 into each array.
        batch_axis: where to insert the batch axis.

    >>> [array.shape for array in Append()([np.zeros(2), np.zeros((3, 4))])]
    [(1, 2), (1, 3, 4)]
    """

    _parts = ()

    def __init__(self, expand: bool = True, batch_axis: int = 0) -> None:
        self._expand, self._axis = expand, batch_axis

    def __call__(self, samples: Sequence[Any]) -> list[Array]:
        samples = list(samples)
        arrays = [as_array(sample, None, i) for i, sample in enumerate(samples)]
        copies = [stack([array], "").reshape(array.shape) for array in arrays]  # arrays of a batch are writable
        batch = [np.expand_dims(array, self._axis) for array in copies] if self._expand else copies
        return [like(samples[0], array) for array in batch]

    @short_repr
    def __repr__(self) -> str:
        return call(self, *arguments(expand=self._expand and None, batch_axis=self._axis or None))


class Group:
    """Applies a batchify function to each field of a tuple; the batch is a tuple. `Tuple` (GluonNLP) is an alias.

    Args:
        fn: the function for the first field, or a list of the functions for all fields.
        args: the functions for the other fields.

    >>> Group(Stack(), AsList())([(1, "a"), (2, "b")])
    (array([1, 2]), ['a', 'b'])
    """

    _parts: tuple[Batchify, ...] = ()

    def __init__(self, fn: Batchify | Sequence[Batchify], *args: Batchify) -> None:
        if not callable(fn) and not isinstance(fn, Sequence):
            raise bad_argument("fn", fn, "must be a function or a list of functions")
        self._parts = _checked_functions("fn", (fn, *args) if callable(fn) else (*fn, *args))

    def __call__(self, samples: Sequence[Any]) -> tuple[Any, ...]:
        samples = list(samples)
        needed = f"Group needs a tuple or list of {len(self._parts)} fields"
        no_fields = Mapping, Set, str, bytes
        check_types(samples, lambda kind: hasattr(kind, "__len__") and not issubclass(kind, no_fields), needed)
        for row, sample in enumerate(samples):
            if len(sample) != len(self._parts):
                what = f"it has {len(sample)} fields, but Group has {len(self._parts)} functions"
                raise BatchifyError(f"{what}; pass Group one function for each field", row)
        fields = zip(self._parts, zip(*samples, strict=True), strict=True)
        return tuple([on_field(f"[{i}]", fn, column) for i, (fn, column) in enumerate(fields)])

    @short_repr
    def __repr__(self) -> str:
        return call(self, *map(describe, self._parts))


class AsList:
    """Returns the samples as a list, without conversion. `List` (GluonNLP) is an alias.

    >>> AsList()(["a", None])
    ['a', None]
    """

    _parts = ()
    __repr__ = short_repr(call)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        return list(samples)


Tuple, List = Group, AsList


class Dict:
    """Applies one batchify function to each key of a dict; the batch is a dict with these keys only.

    Args:
        fns: a dict of functions by key. All other keys of a sample are dropped.

    >>> Dict({"x": Stack()})([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': array([1, 2])}
    """

    _parts: tuple[Batchify, ...] = ()

    def __init__(self, fns: Mapping[Any, Batchify]) -> None:
        if not isinstance(fns, Mapping):
            raise bad_argument("fns", fns, "pass a dict from each key to its batchify function")
        self._fns, self._parts = dict(fns), _checked_functions("fns", fns.values())

    def __call__(self, samples: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
        samples = list(samples)
        check_types(samples, lambda kind: hasattr(kind, "keys"), "Dict needs a dict")
        for row, sample in enumerate(samples):
            missing = self._fns.keys() - sample.keys()
            if missing:
                what = f"it has no key {', '.join(sorted(map(repr, missing)))}, for which Dict has a function"
                raise BatchifyError(f"{what}; return the same keys from each sample in the dataset", row)
        return {key: on_field(f"[{key!r}]", fn, [sample[key] for sample in samples]) for key, fn in self._fns.items()}

    @short_repr
    def __repr__(self) -> str:
        fns = [f"{describe(key)}: {describe(fn)}" for key, fn in self._fns.items()]
        return call(self, f"{{{', '.join(fns)}}}")


class NamedTuple:
    """Applies one batchify function to each field of a named tuple; the batch is a named tuple of the same class.

    Args:
        container: the class of the named tuple.
        fns: one function per field: a list in the order of the fields, or a dict by name.

    >>> Point = TypingNamedTuple("Point", [("x", int), ("y", int)])
    >>> NamedTuple(Point, [Stack(), AsList()])([Point(1, 2), Point(3, 4)])
    Point(x=array([1, 3]), y=[2, 4])
    """

    _parts: tuple[Batchify, ...] = ()

    def __init__(self, container: type[Any], fns: Mapping[str, Batchify] | Sequence[Batchify]) -> None:
        fields: tuple[str, ...] = getattr(container, "_fields", ())
        if not isinstance(fns, (Mapping, Sequence)):
            raise bad_argument("fns", fns, "must be a list or a dict of functions")
        named = dict(fns) if isinstance(fns, Mapping) else dict(zip(fields, fns, strict=False))
        if set(named) != set(fields) or len(fns) != len(fields) or not fields:
            raise bad_argument("fns", fns, f"pass one function for each field of {container.__name__}: {fields}")
        self._container, self._parts = container, _checked_functions("fns", map(named.get, fields))

    def __call__(self, samples: Sequence[Any]) -> Any:
        samples = list(samples)
        needed = f"this NamedTuple needs {self._container.__name__}"
        check_types(samples, lambda kind: issubclass(kind, self._container), needed)
        columns = zip(self._container._fields, self._parts, zip(*samples, strict=True), strict=True)
        return self._container(*[on_field(f".{field}", fn, column) for field, fn, column in columns])

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._container), *map(describe, self._parts))


class Split:
    """Cuts the samples into parts and makes one batch of each part, for example one for each device.

    The parts are those of `mxnet.gluon.utils.split_data`: consecutive samples, in order.

    Args:
        num_slice: number of parts, at least 1.
        batchify_fn: makes the batch of one part; None means `default_batchify`.
        even_split: if True, all parts must have the same size; if False, the first parts may have one sample more.

    Raises:
        BatchifyError: the samples cannot be cut into equal parts, or there are fewer samples than parts.

    >>> Split(2)([1, 2, 3, 4])
    [array([1, 2]), array([3, 4])]
    """

    _parts: tuple[Batchify, ...] = ()

    def __init__(self, num_slice: int, batchify_fn: Batchify | None = None, even_split: bool = True) -> None:
        check_functions(batchify_fn=batchify_fn)
        check_flags(even_split=even_split)
        self._slices, self._even = check_int("num_slice", num_slice, 1), bool(even_split)
        self._parts = (batchify_fn or default_batchify,)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        count, parts, fn = len(samples), self._slices, self._parts[0]
        smaller_size, larger_parts = divmod(count, parts)
        if larger_parts and self._even:
            cure = f"use a batch_size that is a multiple of {parts} with last_batch='discard', or pass even_split=False"
            raise BatchifyError(f"{count} samples cannot be cut into {parts} equal parts; {cure}")
        if not smaller_size:
            cure = "use a larger batch_size, or last_batch='discard'"
            raise BatchifyError(f"{count} samples are too few for {parts} parts; {cure}")
        bounds = [part * smaller_size + min(part, larger_parts) for part in range(parts + 1)]
        return [on_field("", fn, samples[start:stop], start) for start, stop in pairwise(bounds)]

    @short_repr
    def __repr__(self) -> str:
        fn = None if self._parts[0] is default_batchify else self._parts[0]
        return call(self, str(self._slices), *arguments(batchify_fn=fn, even_split=self._even and None))


def only_sample(samples: Sequence[Any]) -> Any:
    """Returns the only sample; the batchify function of an iterable dataset that yields whole batches."""
    (batch,) = samples
    return batch


def on_field(path: str, fn: Batchify, samples: Sequence[Any], first_row: int = 0) -> Any:
    """Runs `fn` on a field of the samples from `first_row` on; its `BatchifyError` names the complete path and row."""
    try:
        return fn(samples)
    except BatchifyError as error:
        if error.row is None and not path:
            raise
        row = None if error.row is None else error.row + first_row
        raise BatchifyError(error.reason, row, path + error.path) from error.__cause__


def _checked_functions(name: str, fns: Iterable[Any]) -> tuple[Batchify, ...]:
    for fn in (checked := tuple(fns)):
        check_function(name, fn, "pass a function that makes a batch from a list of samples, e.g. Stack()")
    return checked
