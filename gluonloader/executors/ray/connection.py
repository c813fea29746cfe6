"""The connection to Ray: the one that the program has, or the one that `ray.init()` makes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from ...errors import WorkerStartError, import_extra
from ...locks import Lock

_SHUTDOWN_S: Final = 5.0  # the longest that the loader waits for the end of `ray.shutdown`
_LOOK_S: Final = 0.01  # how often it looks meanwhile
_lock: Final = Lock()
_forked = False  # this process was forked from one that was connected to Ray


def _note_fork() -> None:
    global _forked
    ray: Any = sys.modules.get("ray")
    _forked = _forked or (hasattr(ray, "is_initialized") and ray.is_initialized())


os.register_at_fork(after_in_child=_note_fork)


def import_ray() -> Any:
    """The package `ray`; raises MissingExtraError if it is not installed."""
    return import_extra("ray", "ray", "Ray")


class RayConnection:
    """Ray, as one executor uses it.

    Calls `ray.init` if the program has not: that joins the cluster that RAY_ADDRESS names, or starts a local instance,
    which ends with the program.

    Args:
        on_shutdown: called when Ray is shut down, in the thread that does so.

    Attributes:
        module: the package `ray`.

    Raises:
        WorkerStartError: this process was forked from one that uses Ray.
    """

    def __init__(self, on_shutdown: Callable[[], None]) -> None:
        if _forked:
            raise WorkerStartError(
                "executor='ray' does not work in this process, because its parent used Ray before the fork; start the "
                "process by spawn or forkserver"
            )
        self.module = ray = import_ray()
        with _lock:
            if not ray.is_initialized():
                ray.init(address=os.environ.get("RAY_ADDRESS", "local"), logging_level="warning")
            self._address = _address_of(ray)
            self._node = weakref.ref(_node_of_ray(), lambda _: on_shutdown())  # Ray drops it when it is shut down
        self._closed = self._left = False
        self._errors = ray.exceptions

    def close(self) -> None:
        """The executor does not use Ray any more, which goes on."""
        self._closed = True

    def leave(self) -> None:
        """Waits until Ray is shut down, which another thread is doing: any use of Ray meanwhile may end the program."""
        self._left = True
        deadline = time.monotonic() + _SHUTDOWN_S
        while self._node() is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    @property
    def error(self) -> WorkerStartError | None:
        """The error to raise if somebody has shut Ray down."""
        if self._closed:
            return None
        if not self._left and self.module.is_initialized() and _address_of(self.module) == self._address:
            return None
        return WorkerStartError("Ray was shut down while a loader used it; close the loader before ray.shutdown()")

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
            "num_workers, or ask for less in executor=Ray(...)"
        )


def _address_of(ray: Any) -> str:
    """Differs between all instances of Ray."""
    address: str = ray.get_runtime_context().gcs_address
    return address


def _node_of_ray() -> Any:
    """An object that Ray drops when it is shut down, after the last of its servers has been told to end."""
    return importlib.import_module("ray._private.worker")._global_node
