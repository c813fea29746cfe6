"""torch's global generator for the CPU.

The seeds are below 2^63, since `torch.initial_seed()` returns the seed, and a batch of such numbers is an int64.
"""

from __future__ import annotations

import sys
from typing import Any


def seed(seed: int) -> None:
    generator = _generator()
    if generator is not None:
        seed_generator(generator, seed)


def seed_generator(generator: Any, seed: int) -> None:
    """Seeds any generator of torch with 64 bits."""
    generator.manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)


def save() -> tuple[Any, Any] | None:
    generator = _generator()
    return None if generator is None else (generator, generator.get_state())


def peek() -> Any:
    """The state, to be compared."""
    generator = _generator()
    return None if generator is None else generator.get_state().numpy().tobytes()


def restore(state: tuple[Any, Any] | None) -> None:
    if state is not None:
        generator, saved = state
        generator.set_state(saved)


def _generator() -> Any:
    """Returns the generator; None while another thread is still importing torch."""
    return getattr(sys.modules["torch"], "default_generator", None)
