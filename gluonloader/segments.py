"""Rows of tokens that consist of segments of documents: the key of a row, and its sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Which documents are in a row: what a `PackingSampler` yields, and `loader.indices` returns.

    Attributes:
        documents: the index of each document, in the order of the row.
        starts, stops: which of its tokens are in the row: those from `start` to `stop - 1`.
        size: number of tokens that fit in the row.
        align: each document starts at a multiple of this many tokens in the row.
        cut: places in `documents` of those that have more tokens than the row contains, after `stop`.
    """

    documents: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    size: int
    align: int = 1
    cut: tuple[int, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each document in the row."""
        return [stop - start for start, stop in zip(self.starts, self.stops, strict=True)]

    def __reduce__(self) -> Any:
        # Workers unpickle the rows of each batch; a frozen dataclass with slots would take five times as long.
        return PackedRow, (self.documents, self.starts, self.stops, self.size, self.align, self.cut)

    def __repr__(self) -> str:
        shown = [
            f"{document}[{start}:{stop}]"
            for document, start, stop in zip(self.documents[:4], self.starts, self.stops, strict=False)
        ]
        more = [f"{len(self.documents) - 4} more"] if len(self.documents) > 4 else []
        return f"PackedRow({', '.join(shown + more)}; size={self.size})"


@dataclass(frozen=True, slots=True)
class Segments:
    """The sample of a `PackedRow`.

    Attributes:
        row: its key.
        tokens: for each document in the row its tokens there, and the token after them, if the document has one.
        fields: for each document its other values of the same tokens, by name; empty if no document has any.
    """

    row: PackedRow
    tokens: list[NDArray[Any]]
    fields: Sequence[Mapping[str, NDArray[Any]]] = ()
