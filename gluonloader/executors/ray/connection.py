"""The connection to Ray: an instance that the program uses already, a cluster, or a local instance of our own."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from ...errors import MissingExtraError, WorkerStartError
from ...limits import available_memory
from ...locks import Lock
from .private import node_of_ray, private

_lock: Final = Lock()
_LEAST_STORE: Final = 80 << 20  # bytes; Ray accepts no smaller store
_forked = False  # this process was forked from one that was connected to Ray


def _note_fork() -> None:
    global _forked
    ray: Any = sys.modules.get("ray")
    _forked = _forked or (hasattr(ray, "is_initialized") and ray.is_initialized())


os.register_at_fork(after_in_child=_note_fork)


def import_ray() -> Any:
    """The package `ray`; raises MissingExtraError if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise MissingExtraError("ray", "Ray") from None


@dataclass(slots=True)
class _LocalInstance:
    """A local instance that this module has started."""

    address: str
    users: int = 0  # executors


_local: _LocalInstance | None = None  # the newest one


class Ray:
    """Ray, as one executor uses it.

    Args:
        num_workers: how many actors the executor starts.
        store_bytes: size of the object store, if a local instance is started.
        on_shutdown: called when Ray is shut down, in the thread that does so.

    Attributes:
        module: the package `ray`.

    Raises:
        WorkerStartError: this process was forked from one that uses Ray.
    """

    def __init__(self, num_workers: int, store_bytes: int, on_shutdown: Callable[[], None]) -> None:
        if _forked:
            raise WorkerStartError(
                "executor='ray' does not work in this process, because its parent used Ray before the fork; start the "
                "process by spawn or forkserver"
            )
        self.module = ray = import_ray()
        with _lock:
            if not ray.is_initialized():
                _connect(ray, num_workers, store_bytes)
            self._address = _address_of(ray)
            self._node = weakref.ref(node_of_ray(), lambda _: on_shutdown())  # Ray drops it when it is shut down
            self._local = _local if _local is not None and _local.address == self._address else None
            if self._local is not None:
                self._local.users += 1
        self._closed = False
        self._errors = ray.exceptions

    def close(self) -> None:
        """Ends the local instance if no other executor uses it."""
        with _lock:
            is_current, closed, self._closed = self.error is None, self._closed, True
            if closed or self._local is None:
                return
            self._local.users -= 1
            if not self._local.users and is_current:
                self.module.shutdown()

    @property
    def error(self) -> WorkerStartError | None:
        """The error to raise if somebody has shut Ray down."""
        if self._closed or (self.module.is_initialized() and _address_of(self.module) == self._address):
            return None
        return WorkerStartError("Ray was shut down while a loader used it; close the loader before ray.shutdown()")

    @property
    def is_own(self) -> bool:
        """Whether this is a local instance of ours, which ends when the last executor that uses it is closed."""
        return self._local is not None

    def put(self, value: Any) -> Any:
        return self.module.put(value)

    def kill(self, actor: Any) -> None:
        """Ends an actor at once; does nothing if that is not possible any more."""
        if self.error is None and self.module.is_initialized():
            with contextlib.suppress(self._errors.RayError, ValueError):
                self.module.kill(actor)

    def future(self, reference: Any) -> Future[Any]:
        """A future for the result of a call; its callbacks run in a thread of Ray."""
        future: Future[Any] = reference.future()
        return future

    def is_unreachable(self, error: BaseException | None) -> bool:
        """Whether Ray has lost the connection to an actor, which may still run."""
        return isinstance(error, self._errors.ActorUnavailableError)

    def is_death(self, error: BaseException | None) -> bool:
        """Whether Ray raised this error because an actor has died or never started."""
        names = "RayActorError", "OutOfMemoryError", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError"
        return isinstance(error, tuple(getattr(self._errors, name) for name in names if hasattr(self._errors, name)))

    def is_loss(self, error: BaseException) -> bool:
        """Whether Ray raised this error because an object is gone."""
        return isinstance(error, (self._errors.ObjectLostError, self._errors.OwnerDiedError))

    def shortage(self) -> str:
        """Says what the cluster has left for further workers."""
        free = self.module.available_resources()
        names = ("CPU", "GPU", "memory")
        left = ", ".join(f"{name}: {free.get(name, 0):g}" for name in names if name == "CPU" or name in free)
        return (
            f"Ray is still starting it, or has no free resources for it (free in the cluster: {left}); lower "
            "num_workers, or ask for less in ray_options"
        )


def _connect(ray: Any, num_workers: int, store_bytes: int) -> None:
    """Connects to the cluster that RAY_ADDRESS names, or starts a local instance."""
    global _local
    if os.environ.get("RAY_ADDRESS", "local") != "local":
        ray.init(logging_level="warning")  # reads RAY_ADDRESS
        return
    with private() as folder:
        ray.init(
            address="local",
            num_cpus=max(num_workers, os.cpu_count() or 1),
            object_store_memory=_bounded(store_bytes),
            include_dashboard=False,
            logging_level="error",
            _temp_dir=folder,
        )
    _local = _LocalInstance(_address_of(ray))


def _address_of(ray: Any) -> str:
    """Differs between all instances of Ray."""
    address: str = ray.get_runtime_context().gcs_address
    return address


def _bounded(store_bytes: int) -> int:
    """The size of a store that fits into memory and /dev/shm; Ray writes what does not fit in the store to files."""
    most = available_memory() // 2
    if os.path.isdir("/dev/shm"):
        most = min(most, shutil.disk_usage("/dev/shm").free * 9 // 10)
    return max(min(store_bytes, most), _LEAST_STORE)
