"""Base classes of samplers: `Sampler`; `OrderedSampler`, with an order that can be sliced; `SeededSampler`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..checks import check_int
from ..indices import is_int_array
from ..randomness import batch_seed, draw_seed
from ..state import int_field, same
from .passes import READ_AHEAD, Pass, Sliceable
from .saved import FIXED, PATH

__all__ = ["OrderedSampler", "Sampler", "SeededSampler", "SizedIterable", "start_order"]


class SizedIterable(Protocol):
    """What a loader needs of a sampler; a plain list is one, too."""

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Sampler:
    """Base of samplers: `__iter__` yields indices (any hashable keys), `__len__` is their number.

    Deriving from it is optional: a loader takes any sized iterable, and so does `Dataset.sample`.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")


class OrderedSampler(Sampler):
    """Base of samplers whose order can be sliced, so that a pass moves to any key without reading others."""

    _read_ahead = READ_AHEAD
    live: tuple[str, ...] = ()  # fields of the pass state that may change while a pass runs

    def _order(self) -> Sliceable:
        """The order of the pass that starts now."""
        raise NotImplementedError(f"{type(self).__name__} must define _order")

    def __iter__(self) -> Iterator[Any]:
        return Pass(self._order(), len(self), self._read_ahead)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON."""
        return {"length": len(self)}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Makes the next pass repeat the one that `pass_state` described; see `load_saved_pass`."""
        self._check_state(state)
        return drawn

    def _check_state(self, state: Mapping[str, Any], *free: str) -> None:
        """Compares all fields but those in `free` with this sampler's own."""
        for name, ours in self.pass_state().items():
            if name not in free:
                same(state, name, ours, f"the {type(self).__name__} here", PATH)


def start_order(sampler: Any) -> tuple[Sliceable | None, int]:
    """The order of a sampler's pass that starts now, and how far to read ahead; None if the sampler only iterates."""
    if type(sampler) in FIXED:
        return list(sampler) if isinstance(sampler, np.ndarray) and not is_int_array(sampler) else sampler, READ_AHEAD
    if isinstance(sampler, OrderedSampler) and type(sampler).__iter__ is OrderedSampler.__iter__:
        return sampler._order(), sampler._read_ahead
    return None, 0


class SeededSampler(OrderedSampler):
    """Base of samplers that shuffle: the order is a function of (seed, epoch), and each iteration is the next epoch.

    Args:
        seed: an int; None draws one from NumPy's global generator now.
        draws: whether the order depends on the seed.

    Attributes:
        adopts: whether a loaded position replaces the seed, because the user gave none.
    """

    def __init__(self, seed: int | None, draws: bool = True) -> None:
        self.adopts = draws and seed is None
        self._seed = draw_seed() if self.adopts else check_int("seed", 0 if seed is None else seed, None)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration uses the order of this epoch."""
        self._epoch = int(epoch)

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch - 1

    def _next_pass_seed(self) -> int:
        """64 bits from which the order of the pass that starts now is computed."""
        return batch_seed(self._seed, self._next_epoch())

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON."""
        return {**super().pass_state(), "seed": self._seed, "epoch": self._epoch}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Makes the next pass repeat the one that `pass_state` described; see `load_saved_pass`."""
        seed, epoch = int_field(state, "seed", None, PATH), int_field(state, "epoch", path=PATH)
        self._check_state(state, "epoch", *(["seed"] if self.adopts else []))
        self._seed, self._epoch = seed, epoch
        return drawn
