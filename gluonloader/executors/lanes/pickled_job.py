"""The job as a pickle, for workers that do not inherit it; the memory of its arrays stays outside of the pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, BinaryIO, Final

from ...errors import GluonLoaderError, TransportError
from ...frameworks import preparations
from ...interrupts import from_signal_handler
from ...messages import message
from ...work.task import Job
from .unpicklable import Dump, Unpicklable, find_unpicklable

_OF_NAMES: Final = "Define its functions and classes at the top level of a module, or use {}"
_OF_OTHERS: Final = "Create it at its first use in each process, and leave it out in __getstate__, or use {}"


@message(frozen=True, slots=True)
class PickledJob:
    """Two pickles, one after the other: functions to call first, and the job without the memory of its arrays."""

    pickle: bytes
    buffers: list[memoryview]


def pickle_job(job: Job, dump: Dump, why: str, otherwise: str, own_cure: Callable[[Unpicklable], str]) -> PickledJob:
    """Pickles a job.

    Args:
        why: what needs the pickle, for the text of the error.
        otherwise: what needs no pickle, or another one; for the text of the error.
        own_cure: returns what to do about an object that cannot be pickled; "" for the usual text.

    Raises:
        TransportError: a part cannot be pickled; the text names it.
    """
    buffers: list[memoryview] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            buffers.append(buffer.raw())
        except BufferError:
            return True  # not contiguous: the array stays in the pickle
        return False

    try:
        return PickledJob(pickle.dumps(preparations) + dump(job, take), buffers)
    except Exception as error:
        if isinstance(error, GluonLoaderError) or from_signal_handler(error):
            raise
        parts = {name: getattr(job, name) for name in ("dataset", "batchify_fn", "worker_init_fn", "payloads")}
        parts["on_error"] = job.reading.on_error
        part, found = next(
            ((name, found) for name, value in parts.items() if (found := find_unpicklable(value, name, dump))),
            ("job", Unpicklable("", error, job)),
        )
        at = "" if found.path in ("", part) else f"{found.path}: "
        text = f"{why} needs to pickle {part}, but this failed: {at}{found.error}"
        usual = _OF_NAMES if isinstance(found.value, (type, FunctionType)) else _OF_OTHERS
        cure = own_cure(found) or usual.format(otherwise)
        raised = TransportError(f"{text}. {cure}")
        raised.needs, raised.part, raised.reason, raised.cure = why, found.path or part, str(found.error), cure
        raise raised from error


def load_job(stream: BinaryIO, buffers: Iterable[Any]) -> Job:
    """Reads the job from a stream that is at the start of a `PickledJob.pickle`."""
    for prepare in pickle.load(stream):
        prepare()
    job: Job = pickle.load(stream, buffers=buffers)
    return job
