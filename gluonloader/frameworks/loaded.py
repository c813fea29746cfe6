"""What has to be done to every framework that is loaded: in a worker, and around a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .base import set_in_worker
from .mxnet_random import seed_later

__all__ = ["enter_worker", "preparations", "preserved_generators", "seed_generators"]

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
    _seed_torch(seed)
    if "mxnet.random" in sys.modules:
        seed_later(seed)


@contextmanager
def preserved_generators(seed: int) -> Iterator[None]:
    """Within the block torch's global generator is seeded; afterwards it has the state from before.

    MXNet's is left alone: its state cannot be read, so it could not be put back.
    """
    generator = _torch_generator()
    if generator is None:
        yield
        return
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def _seed_torch(seed: int) -> None:
    generator = _torch_generator()
    if generator is not None:
        generator.manual_seed(seed)


def _torch_generator() -> Any:
    return getattr(sys.modules.get("torch"), "default_generator", None)
