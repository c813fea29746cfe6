"""Converts NumPy arrays to NDArrays of MXNet and back, without a copy if possible.

    attach   an array in a slab -> NDArray in `cpu_shared(0)`: MXNet maps the slab, and at its end counts itself out as
             a holder at byte 0
    share    any NumPy array -> NDArray in `cpu_shared(0)`: copied to an unnamed file, which MXNet maps like a slab
    borrow   any NumPy array -> NDArray in `cpu(0)` over the same memory, by a DLPack struct
    copy     any NumPy array -> NDArray in MXNet's own memory, for arrays without elements or without axes
    view     NDArray -> NumPy array over the same memory
    stack    NDArrays of equal shape and dtype -> NumPy array of their values, with a new first axis

NOTE [no Python in the engine]: MXNet releases memory in a thread of its engine. Before every fork it waits for that
thread while it holds the GIL. So a release function that needs the GIL, like that of `mx.nd.from_numpy`, deadlocks with
a fork. The functions here do not need the GIL: MXNet unmaps a slab in C++, and the release function of a DLPack struct
is `time` of the C library. `time` overwrites the first word of the struct; a changed word shows that MXNet no longer
uses the memory.

NOTE [slices of a slab]: to send an array in `cpu_shared` to another process, MXNet sends its mapping without the offset
of the array in it. All arrays of a slab lie in the same mapping, so the receiver would read the start of the slab
instead of the array. So `multiprocessing` sends copies.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np

from ..locks import Lock
from .base import Array, Empty, Lent, carrier, leaves_room

_FIRST_ELEMENT: Final = 16  # bytes of MXNet's header in shared memory: a count of holders, then unused
# MXNet subtracts 1 when it is done. At 0 it would also unlink a file name, but the file has no name.
_TWO_HOLDERS: Final = (2).to_bytes(_FIRST_ELEMENT, "little")
_MAX_ELEMENTS: Final = 2**31 - 1  # of one NDArray
_LEAST_PART: Final = 4  # an array is mapped if it takes one part in so many of its slab: it keeps the whole slab


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_CPU: Final = 1
_DLPACK_CODES: Final = {"i": 0, "u": 1, "b": 1, "f": 2}


class _Borrowed:
    """A NumPy array that MXNet uses until `struct.data` changes; see NOTE [no Python in the engine]."""

    def __init__(self, array: Array, deleter: int) -> None:
        self.array = array
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        kind, data = array.dtype.kind, array.__array_interface__["data"][0]
        bits = 1 if kind == "b" else array.itemsize * 8
        dtype, shape = (_DLPACK_CODES[kind], bits, 1), ctypes.addressof(self.shape)
        self.struct, self.data = _DLTensor(data, _CPU, 0, array.ndim, *dtype, shape, None, 0, None, deleter), data


_borrowed: list[_Borrowed] = []  # keeps the arrays alive that MXNet uses
_lock = Lock()


@cache
def _send_copies(mx: Any) -> None:
    """Makes `multiprocessing` send copies; see NOTE [slices of a slab]."""

    def sending_copies(reduce: Any) -> Any:
        return lambda array: reduce(array.copy() if array.context.device_type == "cpu_shared" else array)

    reducers: dict[type, Any] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in reducers.keys() & {mx.nd.NDArray, mx.np.ndarray}:
        ForkingPickler.register(kind, sending_copies(reducers[kind]))


class MXNetMemory:
    """The six conversions above; they call only functions of MXNet's C interface that its Python code calls, too."""

    def __init__(self, mx: Any) -> None:
        self._mx, self._lib, self._handle = mx, mx.base._LIB, mx.base.NDArrayHandle
        self._lib.MXGetLastError.restype = ctypes.c_char_p
        # `lib[name]` returns a new object each time, so MXNet's own function objects keep their argument types.
        self._copy_values = self._lib["MXNDArraySyncCopyToCPU"]
        self._copy_values.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
        # These two functions never block, so PyDLL calls them without releasing the GIL. If the GIL were released, this
        # thread might have to wait until another thread gives it back.
        library = ctypes.PyDLL(mx.libinfo.find_lib_path()[0])
        self._get_shape, self._get_dtype = library["MXNDArrayGetShapeEx"], library["MXNDArrayGetDType"]
        types = mx.nd.ndarray._DTYPE_NP_TO_MX
        self.codes: dict[np.dtype[Any], int] = {np.dtype(kind): code for kind, code in types.items() if kind}
        self.bfloat16 = carrier("bfloat16", 2)
        _send_copies(mx)
        self._deleter = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p).value or 0

    def attach(self, array: Array, base: Lent) -> Any | None:
        """Returns the handle of an NDArray over `array`, which lies in the slab `base`; None if MXNet cannot map it."""
        itemsize, loan = array.dtype.itemsize, base.loan
        start = (array.__array_interface__["data"][0] - loan.address - _FIRST_ELEMENT) // itemsize
        extent = min((loan.nbytes - _FIRST_ELEMENT) // itemsize, _MAX_ELEMENTS)
        if start + array.size > extent or array.nbytes * _LEAST_PART < loan.nbytes:
            return None
        whole = loan.mappings.get(array.dtype)
        if whole is None:  # all arrays of a dtype share a mapping, since slicing is cheaper than mapping
            descriptor = loan.share()
            if descriptor is None:
                return None
            whole = loan.mappings[array.dtype] = self._map(descriptor, extent, array.dtype)
        return self._slice(whole, start, array)

    def _slice(self, whole: Any, start: int, array: Array) -> Any:
        part, stop = self._handle(), start + array.size
        self._call("MXNDArraySlice", whole.handle, ctypes.c_uint(start), ctypes.c_uint(stop), ctypes.byref(part))
        if array.ndim == 1:
            return part
        shaped, shape = self._handle(), (ctypes.c_longlong * array.ndim)(*array.shape)
        self._call("MXNDArrayReshape64", part, array.ndim, shape, False, ctypes.byref(shaped))
        self._call("MXNDArrayFree", part)
        return shaped

    def _map(self, descriptor: int, length: int, dtype: np.dtype[Any]) -> Any:
        handle, shape = self._handle(), (ctypes.c_int * 1)(length)
        # From here on MXNet owns the descriptor. On Linux it ignores the process id.
        self._call(
            "MXNDArrayCreateFromSharedMemEx", os.getpid(), descriptor, shape, 1, self.codes[dtype], ctypes.byref(handle)
        )
        return self._mx.nd.NDArray(handle)

    def share(self, array: Array) -> Any | None:
        """Returns the handle of an NDArray over a copy of `array` in shared memory; None if descriptors run out.

        MXNet's own shared arrays lie in /dev/shm, which may be small. If it is full, a write to it kills the process.
        """
        try:
            descriptor = os.memfd_create("gluonloader", os.MFD_CLOEXEC)
        except (AttributeError, OSError):
            return None
        if not leaves_room(descriptor):
            os.close(descriptor)
            return None
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_TWO_HOLDERS)
            file.write(array.reshape(-1).view(np.uint8).data)
        return self._slice(self._map(descriptor, array.size, array.dtype), 0, array)

    def borrow(self, array: Array) -> Any:
        """Returns the handle of an NDArray over the memory of any C-contiguous array."""
        if array.dtype.names:
            return self.copy(array, False)  # bfloat16, which MXNet's version of DLPack lacks
        lent = _Borrowed(array, self._deleter)
        handle = self._handle()
        self._call("MXNDArrayFromDLPackEx", ctypes.byref(lent.struct), False, ctypes.byref(handle))
        with _lock:
            _borrowed[:] = [*(borrowed for borrowed in _borrowed if borrowed.struct.data == borrowed.data), lent]
        return handle

    def copy(self, array: Array, shared: bool) -> Any:
        """Returns the handle of an NDArray over a copy in MXNet's own memory."""
        context = self._mx.Context("cpu_shared" if shared else "cpu", 0)
        # NumPy has two dtypes of 64 signed bits, of which MXNet knows one.
        dtype = array.dtype if array.dtype.names else np.dtype(array.dtype.str)
        new = self._mx.nd.NDArray(self._mx.nd.ndarray._new_alloc_handle(array.shape, context, False, dtype))
        if not array.ndim:
            new[:] = array  # without axes, MXNet allocates the memory at the first write
        elif array.size:
            np.copyto(self._memory_of(new), array)
        handle, new.handle = new.handle, self._handle()
        return handle

    def view(self, array: Any) -> Array | None:
        """Returns a NumPy array that refers to the memory of an NDArray; None if that is sparse or on a device."""
        if array.stype != "default":  # checked first, since a sparse NDArray has no size
            return None
        if not array.size or not array.shape:
            values: Array = array.asnumpy()
            return values
        if array.ctx.device_type == "gpu":  # not .context, which warns in the NumPy mode
            return None
        return self._memory_of(array)

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Array | None:
        """Copies NDArrays into an array that `empty` allocates.

        Returns None if the NDArrays differ in shape or dtype, are sparse or on a GPU, or have no axes or no elements.
        To call `view` for each NDArray would take 10 us more per NDArray. MXNet's operator `stack` takes 20 times as
        long for images of uint8, reports failed operations only later, and stacks NDArrays of shapes (2,) and (2, 1)
        without an error.
        """
        first, count = arrays[0], len(arrays)
        shape, dtype = first.shape, np.dtype(first.dtype)
        if not shape or 0 in shape or first.stype != "default" or first.ctx.device_type == "gpu":
            return None
        ndim, lengths, code = ctypes.c_int(), ctypes.POINTER(ctypes.c_int)(), ctypes.c_int()
        at_ndim, at_lengths, at_code = map(ctypes.byref, (ndim, lengths, code))
        get_shape, get_dtype, copy = self._get_shape, self._get_dtype, self._copy_values
        axes, wanted, wanted_code = len(shape), list(shape), self.codes[dtype]
        handles = [array.handle for array in arrays]
        for handle in handles:
            if get_dtype(handle, at_code) or get_shape(handle, at_ndim, at_lengths):
                return None
            if code.value != wanted_code or ndim.value != axes or lengths[:axes] != wanted:
                return None
        out = empty((count, *shape), dtype)
        address, step, size = out.__array_interface__["data"][0], out.nbytes // count, out.size // count
        for handle in handles:
            if failed := copy(handle, address, size):  # this waits until the NDArray is computed
                self._mx.base.check_call(failed)
            address += step
        return out

    def _memory_of(self, array: Any) -> Array:
        array.wait_to_read()
        dtype, pointer = np.dtype(array.dtype), ctypes.c_void_p()
        self._call("MXNDArrayGetData", array.handle, ctypes.byref(pointer))
        memory: Any = (ctypes.c_char * (array.size * dtype.itemsize)).from_address(pointer.value or 0)
        memory.array = array
        values: Array = np.ndarray(array.shape, dtype, memory)
        return values

    def _call(self, function: str, *arguments: Any) -> None:
        if getattr(self._lib, function)(*arguments):
            raise RuntimeError(f"MXNet's {function} failed: {self._lib.MXGetLastError()!r}")
