"""The job as an object of Ray's store: every node gets it once, and its workers share the pages of its arrays.

The arrays that a worker sees are read-only views on the store.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TransportError
from ...frameworks import preparations
from ...interrupts import from_signal_handler
from ...work.task import Job


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A pickled job."""

    path: list[str]  # where the main program finds modules
    prepare: bytes  # the pickle of functions to call first
    pickle: bytes
    buffers: list[NDArray[np.uint8]]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the store."""
        return len(self.pickle) + sum(buffer.nbytes for buffer in self.buffers)

    def unpack(self) -> Job:
        """Returns the job. Before, adds those folders of the main program's `sys.path` that this machine has, too."""
        sys.path += [folder for folder in self.path if folder not in sys.path and os.path.isdir(folder)]
        for prepare in pickle.loads(self.prepare):
            prepare()
        job: Job = pickle.loads(self.pickle, buffers=self.buffers)
        return job


def fetch_job(reference: Any) -> Job:
    """The job of a `PackedJob` in the store; called by workers."""
    packed: PackedJob = importlib.import_module("ray").get(reference)
    return packed.unpack()


def pack_job(job: Job) -> PackedJob:
    """Pickles a job by cloudpickle, which also takes lambdas and classes of the main program.

    Raises:
        TransportError: a part cannot be pickled; the text names it.
    """
    dumps: Any = importlib.import_module("ray.cloudpickle").dumps
    buffers: list[NDArray[np.uint8]] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            buffers.append(np.frombuffer(buffer.raw(), np.uint8))
        except BufferError:
            return True  # not contiguous: the array stays in the pickle
        return False

    try:
        return PackedJob(sys.path, pickle.dumps(preparations), dumps(job, protocol=5, buffer_callback=take), buffers)
    except Exception as error:
        if from_signal_handler(error):
            raise
        parts = {name: getattr(job, name) for name in ("dataset", "batchify_fn", "worker_init_fn", "payloads")}
        parts["on_error"] = job.reading.on_error
        part = next((name for name, value in parts.items() if not _can_pickle(dumps, value)), "job")
        raise TransportError(
            f"executor='ray' needs to pickle {part}, but this failed: {error}. Create file handles, locks and "
            "connections when they are first used, not in the constructor"
        ) from error


def _can_pickle(dumps: Any, value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True
