"""`PackedDataset` reads the rows that a `PackingSampler` yields from a dataset of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_indexed
from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, read
from ..dataset.iterable import is_iterable
from ..declared import needed_blocks
from ..describe import call, describe, short_repr
from ..errors import bad_argument
from ..segments import PackedRow, Segments
from .documents import Fields, document_of, segments_of


class PackedDataset(Dataset):
    """A dataset of rows of several documents; its keys are the rows of a `PackingSampler`.

    The sample of a row is a `Segments` object, of which `PackRows` makes batches. All documents of a batch are read by
    one bulk read, if the dataset has it.

    Args:
        documents: a dataset whose samples are the tokens of documents, ints of shape (N,), such as a `TokenDataset`, or
            a `ConcatDataset` of several.
        field: the name or number of the field with the tokens, if a sample is a dict or a tuple. The other fields of a
            dict that are arrays or lists of numbers belong to its tokens, e.g. `labels`; `PackRows` packs them, too.

    Attributes:
        documents: the dataset of documents.

    >>> rows = PackedDataset([[5, 3, 8], [1, 7]])
    >>> rows[PackedRow(documents=(1, 0), starts=(0, 0), stops=(2, 3), size=8)].tokens
    [array([1, 7]), array([5, 3, 8])]
    """

    def __init__(self, documents: Any, field: Any = None) -> None:
        if is_iterable(documents):
            raise bad_argument("documents", documents, "it cannot be indexed; pass PackedStream(documents, size)")
        check_indexed("documents", documents)
        self.documents, self._field = documents, field

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
        numbers = [document for row in indices for document in row.documents]
        samples: Sequence[Any] = read(self.documents, numbers)
        tokens: list[NDArray[Any]] = samples if type(samples) is list else list(samples)
        fields: list[Fields] = []
        if self._field is not None or {*map(type, tokens)} != {np.ndarray}:
            documents = [
                document_of(sample, self._field, number) for sample, number in zip(samples, numbers, strict=True)
            ]
            tokens, fields = [document.tokens for document in documents], [document.fields for document in documents]
        found, end = [], 0
        for row in indices:
            start, end = end, end + len(row.documents)
            found.append(segments_of(row, tokens[start:end], fields[start:end]))
        return found

    def needed_blocks(self, rows: Any) -> list[Any]:
        """The blocks of caches in which the documents of rows lie; see `gluonloader.declared`."""
        documents = [document for row in rows if isinstance(row, PackedRow) for document in row.documents]
        return needed_blocks(self.documents, np.array(documents, np.intp))

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.documents,)

    @property
    def _identity(self) -> dict[str, Any] | None:
        return None if self._field is None else {"field": str(self._field)}

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self.documents))
