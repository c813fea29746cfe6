"""`PackedDataset` reads the rows that a `PackingSampler` yields from a dataset of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, read
from ..describe import call, describe, short_repr
from ..errors import TokenError
from ..segments import PackedRow, Segments


class PackedDataset(Dataset):
    """A dataset of rows of several documents; its keys are the rows of a `PackingSampler`.

    The sample of a row is a `Segments` object, of which `PackRows` makes batches. All documents of a batch are read by
    one bulk read, if the dataset has it.

    Args:
        documents: a dataset whose samples are the tokens of documents, ints of shape (N,), such as a `TokenDataset`, or
            a `ConcatDataset` of several.
        field: the name or number of the field with the tokens, if a sample is a dict or a tuple.

    >>> rows = PackedDataset([[5, 3, 8], [1, 7]])
    >>> rows[PackedRow(documents=(1, 0), starts=(0, 0), stops=(2, 3), size=8)].tokens
    [array([1, 7]), array([5, 3, 8])]
    """

    def __init__(self, documents: Any, field: Any = None) -> None:
        self._documents, self._field = documents, field

    def __len__(self) -> int:
        what = "a PackedDataset has no length, because the sampler decides its rows"
        raise TypeError(f"{what}; pass sampler=PackingSampler(lengths, size) to the loader")

    def __getitem__(self, index: Any) -> Segments:
        samples: list[Segments] = self.__getitems__([index])
        return samples[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> list[Segments]:
        for row in indices:
            if not isinstance(row, PackedRow):
                what = f"a PackedDataset has rows, not samples with the index {row!r:.80}"
                raise TypeError(f"{what}; pass sampler=PackingSampler(lengths, size) to the loader")
        documents = iter(self._tokens_of([document for row in indices for document in row.documents]))
        samples = []
        for row in indices:
            places = zip(row.documents, row.starts, row.stops, strict=True)
            samples.append(Segments(row, [_segment(*place, next(documents)) for place in places]))
        return samples

    def _tokens_of(self, documents: list[int]) -> list[NDArray[Any]]:
        samples = read(self._documents, documents)
        if self._field is not None:
            samples = [sample[self._field] for sample in samples]
        return [sample if type(sample) is np.ndarray else np.asarray(sample) for sample in samples]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._documents,)

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._documents))


def _segment(document: int, start: int, stop: int, tokens: NDArray[Any]) -> NDArray[Any]:
    """The tokens of a document in a row, and the next one, if there is one."""
    if tokens.ndim != 1 or len(tokens) < stop:
        what = f"document {document} has shape {tokens.shape}, but the sampler expects at least {stop} tokens"
        raise TokenError(f"{what}; pass the lengths of this dataset to the PackingSampler")
    return tokens[start : stop + 1]
