"""How much of the batches of tokens is padding, by the lengths of the documents in the first batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...batchify import PackRows, Pad
from ...loader import DataLoader
from ...segments import PackedRow

_BATCHES: Final = 8


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens of the first batches.

    Attributes:
        rows: whether they are rows of a `PackingSampler`; otherwise documents are padded to the longest one of a batch.
        tokens: number of tokens of documents.
        capacity: number of tokens, with padding.
    """

    rows: bool
    tokens: int
    capacity: int

    @property
    def share(self) -> float:
        """The share of padding, from 0 to 1."""
        return 1 - self.tokens / self.capacity


def padding_of(loader: DataLoader[Any]) -> Padding | None:
    """The padding; None if the loader does not pad documents of known lengths."""
    job = loader.epochs.workers.job
    lengths: Any = getattr(job.dataset, "lengths", None)
    rows = isinstance(job.batchify_fn, PackRows)
    if job.iterable or not (rows or (isinstance(job.batchify_fn, Pad) and lengths is not None)):
        return None
    tokens = capacity = 0
    for keys in _first_batches(loader):
        taken = [sum(key.lengths) if isinstance(key, PackedRow) else int(lengths[key]) for key in keys]
        tokens += sum(taken)
        capacity += sum(key.size for key in keys) if rows else len(taken) * max(taken)
    return Padding(rows, tokens, capacity) if capacity else None


def _first_batches(loader: DataLoader[Any]) -> Iterator[Sequence[Any]]:
    """The keys of the first batches; none if the order is not known."""
    for number in range(_BATCHES):
        try:
            keys = loader.indices(0, number)
        except ValueError:  # the epoch has fewer batches
            return
        yield keys
