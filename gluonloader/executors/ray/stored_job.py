"""The job as an object of Ray's store: every node gets it once, and its workers share the pages of its arrays.

The arrays that a worker sees are read-only views on the store.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing import context
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...messages import message
from ...work.task import Job
from ..lanes.inherited import check_inheritable, is_inherited
from ..lanes.pickled_job import load_job, pickle_job
from ..lanes.unpicklable import Unpicklable

_OF_INHERITED: Final = (
    "Actors of Ray may run on other machines, so they cannot share it with this program; leave it out, or use "
    "executor='process'"
)


@message(frozen=True, slots=True)
class StoredJob:
    """A pickled job, and where the main program finds modules."""

    path: list[str]
    pickle: bytes
    buffers: list[NDArray[np.uint8]]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the store."""
        return len(self.pickle) + sum(buffer.nbytes for buffer in self.buffers)


def pickle_for_store(job: Job) -> StoredJob:
    """Pickles a job by cloudpickle, which also takes lambdas and classes of the main program.

    Raises:
        TransportError: a part cannot be pickled; the text names it.
    """
    from multiprocessing.managers import BaseProxy  # importing it takes 5 ms

    cloudpickle: Any = importlib.import_module("ray.cloudpickle")

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, BaseProxy):  # its manager refuses processes that this program has not started
                context.assert_spawning(obj)
            check_inheritable(obj)
            return super().reducer_override(obj)

    def dump(value: Any, take: Callable[[pickle.PickleBuffer], bool]) -> bytes:
        body = io.BytesIO()
        Pickler(body, protocol=5, buffer_callback=take).dump(value)
        return body.getvalue()

    def own_cure(found: Unpicklable) -> str:
        return _OF_INHERITED if is_inherited(found.value) else ""

    pickled = pickle_job(job, dump, "executor='ray'", "executor='thread'", own_cure)
    return StoredJob(sys.path, pickled.pickle, [np.frombuffer(buffer, np.uint8) for buffer in pickled.buffers])


def fetch_job(reference: Any) -> Job:
    """The job of a `StoredJob` in the store; called by workers.

    Before, this adds those folders of the main program's `sys.path` that this machine has, too.
    """
    stored: StoredJob = importlib.import_module("ray").get(reference)
    sys.path += [folder for folder in stored.path if folder not in sys.path and os.path.isdir(folder)]
    return load_job(io.BytesIO(stored.pickle), stored.buffers)
