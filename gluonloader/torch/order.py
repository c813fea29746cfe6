"""The order of the samples: passes over torch's samplers, and the state of the generators that they draw from."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import sampler as own
from ..errors import bad_state
from ..state import has_state
from .utils_data import data, torch


class Order:
    """A batch sampler of gluonloader that yields what torch's batch sampler or sampler yields.

    Args:
        index_sampler: torch's batch sampler; or its sampler, if samples are not batched.
        whole: yield each item as the only key of a batch; see `Whole`.
    """

    def __init__(self, index_sampler: Any, whole: bool) -> None:
        self._index_sampler, self._whole = index_sampler, whole
        self._next_pass: Iterator[Any] | None = None
        inner = _inner(index_sampler)
        if has_state(inner) or hasattr(inner, "rank"):
            self.sampler = inner  # its state is saved, and ranks get different random numbers

    def start_pass(self) -> None:
        """Calls `iter` of torch's sampler for the next pass; torch does so before it draws the seed of the workers."""
        self._next_pass = iter(self._index_sampler)

    def __iter__(self) -> Iterator[Any]:
        keys, self._next_pass = self._next_pass, None
        keys = iter(self._index_sampler) if keys is None else keys
        return ([key] for key in keys) if self._whole else keys

    def __len__(self) -> int:
        return len(self._index_sampler)

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: as with torch, the program itself calls `set_epoch` of its sampler."""


def order_of(loader: Any, whole: bool) -> Any:
    """The batch sampler for a loader. Samplers of gluonloader get gluonloader's, which saves their position."""
    batches = loader.batch_sampler
    if not whole and isinstance(batches, own.BatchSampler):
        return batches
    if not whole and type(batches) is data.BatchSampler and isinstance(batches.sampler, own.Sampler):
        return own.BatchSampler(batches.sampler, batches.batch_size, "discard" if batches.drop_last else "keep")
    return Order(loader.sampler if batches is None else batches, whole)


def draw_seed(loader: Any) -> int:
    """Draws the seed of the workers, as torch does at the start of a pass."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator))


def generators_of(loader: Any) -> list[Any]:
    """The generators from which a pass draws: torch's global generator, and those of the loader and its samplers."""
    parts = [loader, loader.batch_sampler, loader.sampler, _inner(loader.batch_sampler)]
    found = [torch.default_generator, *(getattr(part, "generator", None) for part in parts)]
    return list({id(generator): generator for generator in found if isinstance(generator, torch.Generator)}.values())


def save(generators: Sequence[Any]) -> list[Any]:
    """Their states, as tensors."""
    return [generator.get_state() for generator in generators]


def restore(generators: Sequence[Any], states: Sequence[Any]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


def as_text(state: Any) -> str:
    """The state of a generator as a text of a few kB."""
    return base64.b64encode(zlib.compress(state.numpy().tobytes())).decode()


def as_states(texts: Any, generators: Sequence[Any]) -> list[Any]:
    """The states of generators from their texts.

    Raises:
        ValueError: they do not fit these generators.
    """
    if not isinstance(texts, list) or len(texts) != len(generators):
        right = f"this loader draws from {len(generators)} generators; pass generator= as when the state was saved"
        raise bad_state("generators", texts, right)
    try:
        states = [np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8) for text in texts]
        for state in states:
            torch.Generator().set_state(torch.from_numpy(state.copy()))  # raises an error if it is not a state
        return [torch.from_numpy(state.copy()) for state in states]
    except (ValueError, TypeError, RuntimeError, zlib.error) as error:
        raise bad_state("generators", texts, f"these are not states of torch.Generator ({error})") from None


def _inner(sampler: Any) -> Any:
    """The sampler inside batch samplers."""
    while hasattr(sampler, "sampler"):
        sampler = sampler.sampler
    return sampler
