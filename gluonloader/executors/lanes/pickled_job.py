"""The job as a pickle, for workers that do not inherit it; the memory of its arrays stays outside of the pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

from ...errors import GluonLoaderError, TransportError
from ...frameworks import preparations
from ...interrupts import from_signal_handler
from ...work.task import Job

# Pickles a value; the second argument is the `buffer_callback` of `pickle.dumps`.
Dump = Callable[[Any, Callable[[pickle.PickleBuffer], bool]], bytes]


@dataclass(frozen=True, slots=True)
class PickledJob:
    """Two pickles, one after the other: functions to call first, and the job without the memory of its arrays."""

    pickle: bytes
    buffers: list[memoryview]


def pickle_job(job: Job, dump: Dump, why: str, cure: str) -> PickledJob:
    """Pickles a job.

    Args:
        why: what needs the pickle, for the text of the error.
        cure: what to do if it fails, for the text of the error.

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
        part = next((name for name, value in parts.items() if not _can_dump(dump, value)), "job")
        raise TransportError(f"{why} needs to pickle {part}, but this failed: {error}. {cure}") from error


def _can_dump(dump: Dump, value: Any) -> bool:
    try:
        dump(value, lambda buffer: True)
    except Exception:
        return False
    return True


def load_job(stream: BinaryIO, buffers: Iterable[Any]) -> Job:
    """Reads the job from a stream that is at the start of a `PickledJob.pickle`."""
    for prepare in pickle.load(stream):
        prepare()
    job: Job = pickle.load(stream, buffers=buffers)
    return job
