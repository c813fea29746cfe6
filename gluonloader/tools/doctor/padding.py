"""How much of the batches of tokens is padding, by the lengths of the documents in the first batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...batchify import Pad
from ...indices import is_int_array
from ...loader import DataLoader
from ...messages import message
from ...segments import PackedRow
from ...text.pack_rows import PackRows


@message(frozen=True, slots=True)
class Padding:
    """Tokens of the first batches.

    Attributes:
        rows: whether the batches consist of rows of a `PackingSampler`; otherwise each document is padded to the
            longest one of its batch.
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


def padding_of(loader: DataLoader[Any], count: int) -> Padding | None:
    """The padding of the first `count` batches; None if the loader does not pad documents of known lengths."""
    job = loader.epochs.workers.job
    lengths: Any = getattr(job.dataset, "lengths", None)
    rows = isinstance(job.batchify_fn, PackRows) and job.batchify_fn.layout == "rows"
    if job.iterable or not (rows or (isinstance(job.batchify_fn, Pad) and is_int_array(lengths))):
        return None
    tokens = capacity = 0
    for keys in _first_batches(loader, count):
        if rows and not all(isinstance(key, PackedRow) for key in keys):
            return None
        taken = [sum(key.lengths) for key in keys] if rows else [int(length) for length in lengths[keys]]
        tokens += sum(taken)
        capacity += sum(key.size for key in keys) if rows else len(taken) * max(taken)
    return Padding(rows, tokens, capacity) if capacity else None


def _first_batches(loader: DataLoader[Any], count: int) -> Iterator[Sequence[Any]]:
    """The keys of the first batches; none if the order is not known."""
    for number in range(count):
        try:
            keys = loader.indices(0, number)
        except (ValueError, IndexError):  # the epoch has fewer batches
            return
        yield keys
