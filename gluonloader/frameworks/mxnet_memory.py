"""How memory gets into MXNet and out of it without a copy, and without Python where MXNet lets go of it.

    attach   a slab: MXNet maps it by its descriptor, as `cpu_shared(0)`, and counts itself out at byte 0 at its end
    share    any NumPy array: a copy in a file without a name, which MXNet maps like a slab
    borrow   any NumPy array: a DLPack struct by hand, as `cpu(0)`
    view     an NDArray, as a NumPy array
    copy     an NDArray of MXNet's own memory, for arrays without elements or without axes

NOTE [no Python in the engine]: MXNet lets go of memory on a thread of its engine, and waits for that thread before
every fork, holding the GIL. A release function that needs the GIL, as that of `mx.nd.from_numpy`, therefore deadlocks
with a fork. Nothing here needs it: a mapping is undone by MXNet in C++, and the release function of a DLPack struct
is the C library's `time`, which writes the time over the struct's first word: once it has changed, MXNet is done.

NOTE [slices of a slab]: when MXNet sends an array in `cpu_shared` to another process it sends the memory it was mapped
with, from its start. For a slice, as all arrays of a slab are, the receiver would see other values. So what leaves by
`multiprocessing` is a copy.
"""

from __future__ import annotations

import ctypes
import os
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np

from .base import Array, Lent, carrier, leaves_room

__all__ = ["MXNetMemory"]

_FIRST_ELEMENT: Final = 16  # MXNet's own header in shared memory: a count of holders, and room
_TWO_HOLDERS: Final = (2).to_bytes(_FIRST_ELEMENT, "little")  # MXNet, and nobody: at 0 it would look for a name
_MOST_ELEMENTS: Final = 2**31 - 1  # of one array


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
    """A NumPy array that MXNet looks into, until it says that it is done."""

    __slots__ = ("array", "shape", "struct")

    def __init__(self, array: Array, deleter: int) -> None:
        self.array = array
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        dtype = array.dtype
        self.struct = _DLTensor(
            array.__array_interface__["data"][0],
            _CPU,
            0,
            array.ndim,
            _DLPACK_CODES[dtype.kind],
            1 if dtype.kind == "b" else dtype.itemsize * 8,
            1,
            ctypes.addressof(self.shape),
            None,
            0,
            None,
            deleter,
        )

    @property
    def done(self) -> bool:
        return bool(self.struct.data != self.array.__array_interface__["data"][0])


_borrowed: list[_Borrowed] = []  # of the whole process
_lock = threading.Lock()


def _send_copies(mx: Any) -> None:
    """See NOTE [slices of a slab]."""
    for kind in (mx.nd.NDArray, mx.np.ndarray):
        reduce = ForkingPickler._extra_reducers.get(kind)  # type: ignore[attr-defined]
        if reduce is not None and not isinstance(reduce, _SendCopy):
            ForkingPickler.register(kind, _SendCopy(reduce))


class _SendCopy:
    def __init__(self, reduce: Any) -> None:
        self._reduce = reduce

    def __call__(self, array: Any) -> Any:
        return self._reduce(array.copy() if array.context.device_type == "cpu_shared" else array)


class MXNetMemory:
    """The roads, over MXNet's C interface, as far as its Python side uses it too."""

    def __init__(self, mx: Any) -> None:
        self._mx, self._lib, self._handle = mx, mx.base._LIB, mx.base.NDArrayHandle
        self._lib.MXGetLastError.restype = ctypes.c_char_p
        types = mx.nd.ndarray._DTYPE_NP_TO_MX
        self.codes: dict[np.dtype[Any], int] = {np.dtype(kind): code for kind, code in types.items() if kind}
        self.bfloat16 = carrier("bfloat16", 2)
        _send_copies(mx)
        self._deleter = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p).value or 0

    def attach(self, array: Array, base: Lent) -> Any | None:
        """The handle of an NDArray over `array`, which lies in the slab `base`; None if MXNet cannot map that."""
        itemsize = array.dtype.itemsize
        start = (array.__array_interface__["data"][0] - base.address - _FIRST_ELEMENT) // itemsize
        extent = min((base.nbytes - _FIRST_ELEMENT) // itemsize, _MOST_ELEMENTS)
        if start + array.size > extent:
            return None
        whole = base.mappings.get(array.dtype)
        if whole is None:  # one mapping for all arrays of a dtype: a mapping costs more than a slice of it
            descriptor = base.share()
            if descriptor is None:
                return None
            whole = base.mappings[array.dtype] = self._map(descriptor, extent, array.dtype)
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
        # MXNet owns the descriptor from here on; the process id that comes first is not looked at on Linux.
        self._call(
            "MXNDArrayCreateFromSharedMemEx", os.getpid(), descriptor, shape, 1, self.codes[dtype], ctypes.byref(handle)
        )
        return self._mx.nd.NDArray(handle)

    def share(self, array: Array) -> Any | None:
        """The handle of an NDArray over a copy of `array` in shared memory; None if there is no descriptor for it.

        MXNet would make one in /dev/shm, which can be small, and writing past its end kills the process.
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
        """The handle of an NDArray over the memory of any C-contiguous array."""
        if array.dtype.names:
            return self.copy(array, False)  # bfloat16: there is no code for it in this DLPack
        lent = _Borrowed(array, self._deleter)
        handle = self._handle()
        self._call("MXNDArrayFromDLPackEx", ctypes.byref(lent.struct), False, ctypes.byref(handle))
        with _lock:
            _borrowed[:] = [*(borrowed for borrowed in _borrowed if not borrowed.done), lent]
        return handle

    def copy(self, array: Array, shared: bool) -> Any:
        """The handle of an NDArray with memory of its own."""
        context = self._mx.Context("cpu_shared" if shared else "cpu", 0)
        allocate = self._mx.nd.ndarray._new_alloc_handle
        new = self._mx.nd.NDArray(allocate(array.shape, context, False, array.dtype))
        if not array.ndim:
            new[:] = array  # without axes it has no memory until it is written
        elif array.size:
            np.copyto(self._look_at(new), array)
        handle, new.handle = new.handle, self._handle()
        return handle

    def view(self, array: Any) -> Array | None:
        """The memory of an NDArray as a NumPy array that keeps it alive; None if it is sparse, or on a device."""
        if array.stype != "default":  # first: a sparse one has no size
            return None
        if not array.size or not array.shape:
            values: Array = array.asnumpy()
            return values
        if array.ctx.device_type == "gpu":  # .context warns where the array is of the NumPy mode
            return None
        return self._look_at(array)

    def _look_at(self, array: Any) -> Array:
        array.wait_to_read()
        dtype, shape = np.dtype(array.dtype), array.shape
        pointer = ctypes.c_void_p()
        self._call("MXNDArrayGetData", array.handle, ctypes.byref(pointer))
        memory: Any = (ctypes.c_char * (array.size * dtype.itemsize)).from_address(pointer.value or 0)
        memory.array = array
        values: Array = np.ndarray(shape, dtype, memory)
        return values

    def _call(self, function: str, *arguments: Any) -> None:
        if getattr(self._lib, function)(*arguments):
            raise RuntimeError(f"MXNet's {function} failed: {self._lib.MXGetLastError()!r}")
