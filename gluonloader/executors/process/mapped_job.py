"""The job for workers that do not inherit it by fork: its pickle and its arrays lie in a file that all workers map.

Tensors of torch and NDArrays are written as NumPy arrays, so that workers share their pages as well.

main     write: one file | buffer, buffer, ... (64-byte aligned) | pickle |     every worker maps the same pages
worker   read: arrays are views on a private (copy-on-write) mapping, so a worker that writes gets its own page
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.reduction import ForkingPickler
from multiprocessing.synchronize import SemLock
from types import FunctionType
from typing import Any, Final

from numpy.typing import NDArray

from ...errors import TransportError
from ...frameworks import is_shared, named, owner
from ...memory.slab import align, anonymous_file, reserve
from ...messages import message
from ...work.task import Job
from ..lanes.inherited import check_inheritable, is_inherited, library_of, may_be_inherited
from ..lanes.pickled_job import PickledJob, load_job, pickle_job
from ..lanes.unpicklable import Unpicklable
from .inheritance import Inheritance, inherited
from .main_script import main_script


@message(frozen=True, slots=True)
class MappedJob:
    """A file of `size` bytes; the last `length` bytes are pickles: where the buffers lie, what to call, and the job."""

    fd: int
    size: int
    length: int


_AS_NUMPY: Final = ("torch", "mxnet.nd", "mxnet.np")
_OF_SHARED_WORKERS: Final = "Workers of several ranks cannot share it with one of them; leave it out, or remove share"


class _MadeForFork(RuntimeError):
    """A lock has no name by which other processes than forked ones could find it; Python 3.10 does not notice."""


class _Pickler(pickle.Pickler):
    """Pickles tensors as NumPy arrays.

    Args:
        main_names: gets the names of the functions and classes that the pickle refers to and `__main__` defines.
        inheritance: gets what workers inherit; None if they can inherit nothing.
    """

    def __init__(
        self,
        body: io.BytesIO,
        take: Callable[[pickle.PickleBuffer], bool],
        main_names: set[str],
        inheritance: Inheritance | None,
    ) -> None:
        super().__init__(body, protocol=5, buffer_callback=take)
        self._main_names, self._inheritance = main_names, inheritance
        known = ForkingPickler(body).dispatch_table  # how `multiprocessing` pickles pipes, sockets, ...
        self.dispatch_table = {
            kind: reduce for kind, reduce in known.items() if library_of(kind) not in ("torch", "mxnet")
        }

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, FunctionType)):
            if obj.__module__ == "__main__":
                self._main_names.add(obj.__qualname__)
            return NotImplemented
        if may_be_inherited(type(obj)):
            check_inheritable(obj)
            if self._inheritance is not None and is_shared(obj):
                return inherited, (self._inheritance.keep(obj),)
            if isinstance(obj, SemLock) and obj._semlock.name is None:  # type: ignore[attr-defined]
                raise _MadeForFork("multiprocessing has made it for forked processes")
        framework = owner(type(obj))
        array = framework.to_numpy(obj) if framework is not None and framework.name in _AS_NUMPY else None
        return NotImplemented if framework is None or array is None else (_restore, (framework.name, array))


def _restore(framework: str, array: NDArray[Any]) -> Any:
    return named(framework).from_numpy(array)


def pickle_for(start_method: str, job: Job, inheritance: Inheritance | None = None) -> PickledJob:
    """Pickles a job.

    Args:
        inheritance: gets what workers inherit; None if several ranks share the workers, which inherit nothing.

    Raises:
        TransportError: a part cannot be pickled, or is defined in `__main__`, which workers cannot import. The text
            names it.
    """
    main_names: set[str] = set()

    def dump(value: Any, take: Callable[[pickle.PickleBuffer], bool]) -> bytes:
        body = io.BytesIO()
        _Pickler(body, take, main_names, inheritance).dump(value)
        return body.getvalue()

    def own_cure(found: Unpicklable) -> str:
        if inheritance is None:
            return _OF_SHARED_WORKERS if is_inherited(found.value) else ""
        context = f"multiprocessing.get_context({start_method!r})"
        return f"Make it with {context}, or use start_method='fork'" if isinstance(found.error, _MadeForFork) else ""

    with nullcontext() if inheritance is None else inheritance.pickling():
        pickled = pickle_job(job, dump, f"start_method={start_method!r}", "start_method='fork'", own_cure)
    if main_names and not main_script():
        what = f"start_method={start_method!r}: workers cannot import {', '.join(sorted(main_names))} from __main__"
        where = "which is a notebook, an interactive session, standard input or a package"
        cure = "Define it in a module (a .py file) and import it from there"
        raise TransportError(f"{what}, {where}. {cure}, or use start_method='fork' or executor='thread'")
    return pickled


def write_job(job: PickledJob) -> MappedJob:
    """Writes a job into a new file without a name; raises SharedMemoryError if there is no room."""
    spans, end = [], 0
    for buffer in job.buffers:
        spans.append((end, len(buffer)))
        end = align(end + len(buffer))
    head = pickle.dumps(spans) + job.pickle
    fd = anonymous_file()
    try:
        reserve(fd, end + len(head))
        for (offset, _), buffer in zip(spans, job.buffers, strict=True):
            _write(fd, buffer, offset)
        _write(fd, memoryview(head), end)
    except OSError:
        os.close(fd)
        raise
    return MappedJob(fd, end + len(head), len(head))


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def read_job(mapped: MappedJob) -> Job:
    """The job; its arrays are views of the file's pages, and keep them mapped."""
    memory = memoryview(mmap.mmap(mapped.fd, mapped.size, flags=mmap.MAP_PRIVATE))
    head = io.BytesIO(memory[mapped.size - mapped.length :])
    spans = pickle.load(head)
    return load_job(head, [memory[offset : offset + size] for offset, size in spans])
