"""What has to be done to every framework that is loaded: in a worker, and around a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .base import set_in_worker
from .mxnet_random import noted_seed, seed_later

__all__ = [
    "PreservedGenerators",
    "enter_worker",
    "preparations",
    "seed_generators",
    "seed_restorable",
    "state_of_generators",
]

# What has to be called in a worker that did not inherit this process's memory, before its job is unpickled.
preparations: list[Callable[[], object]] = []


def enter_worker() -> None:
    """This process is a worker: from now on no framework starts threads in it unasked.

    A forked process has lost the threads of torch's OpenMP pool, and waits for them for ever if it uses them.
    """
    set_in_worker()
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def seed_generators(seed: int) -> None:
    """Seeds the global generators of the frameworks that are loaded; see NOTE [batch seeds] in randomness.py."""
    seed_restorable(seed)
    if "mxnet.random" in sys.modules:
        seed_later(seed)


class PreservedGenerators:
    """Puts the state of torch's global generator back at the end of the block.

    MXNet's is left alone: its state cannot be read, so it could not be put back.
    """

    def __enter__(self) -> None:
        self._generator = _torch_generator()
        self._state = None if self._generator is None else self._generator.get_state()

    def __exit__(self, *exc_info: object) -> None:
        if self._generator is not None:
            self._generator.set_state(self._state)


def seed_restorable(seed: int) -> None:
    """Seeds those whose state `PreservedGenerators` can put back."""
    generator = _torch_generator()
    if generator is not None:
        generator.manual_seed(seed)


def state_of_generators() -> object:
    """What is equal after a batch was seeded and later, if nothing was drawn, and no framework was loaded, meanwhile.

    Of MXNet, whose state cannot be read: whether an operator has run; see NOTE [late seeds] in mxnet_random.py.
    """
    generator = _torch_generator()
    torch = None if generator is None else generator.get_state().numpy().tobytes()
    return torch, "mxnet.random" in sys.modules, noted_seed()


def _torch_generator() -> Any:
    return getattr(sys.modules.get("torch"), "default_generator", None)
