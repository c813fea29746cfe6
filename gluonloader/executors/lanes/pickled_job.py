"""The job as a pickle, for workers that do not inherit it; the memory of its arrays stays outside of the pickle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from ...errors import GluonLoaderError, TransportError
from ...frameworks import preparations
from ...interrupts import from_signal_handler
from ...work.task import Job
from .unpicklable import Dump, Unpicklable, find_unpicklable

# What to do about a function or class that cannot be pickled, and about any other object.
_CURES: Final = {
    True: "Define its functions and classes at the top level of a module",
    False: "Create it at its first use in each process, and leave it out in __getstate__",
}


@dataclass(frozen=True, slots=True)
class PickledJob:
    """Two pickles, one after the other: functions to call first, and the job without the memory of its arrays."""

    pickle: bytes
    buffers: list[memoryview]


def pickle_job(job: Job, dump: Dump, why: str, otherwise: str) -> PickledJob:
    """Pickles a job.

    Args:
        why: what needs the pickle, for the text of the error.
        otherwise: what needs no pickle, or another one; for the text of the error.

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
            ("job", Unpicklable("", error, False)),
        )
        at = "" if found.path in ("", part) else f"{found.path}: "
        text = f"{why} needs to pickle {part}, but this failed: {at}{found.error}"
        raise TransportError(f"{text}. {_CURES[found.by_name]}, or use {otherwise}") from error


def load_job(stream: BinaryIO, buffers: Iterable[Any]) -> Job:
    """Reads the job from a stream that is at the start of a `PickledJob.pickle`."""
    for prepare in pickle.load(stream):
        prepare()
    job: Job = pickle.load(stream, buffers=buffers)
    return job
