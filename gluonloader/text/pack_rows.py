"""`PackRows` makes batches of the rows of a `PackedDataset`, as trainers of language models read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..checks import check_int
from ..describe import arguments, call, short_repr
from ..errors import BatchifyError, bad_argument
from ..memory import empty
from ..segments import Segments

Layout = Literal["rows", "flat"]
Labels = Literal["shift", "same"]


class PackRows:
    """Makes a dict of arrays of rows of documents; write `batchify_fn=PackRows()`.

    With the layout 'rows', for B rows of `size` tokens:

    - `tokens`, shape (B, size): the tokens, then padding;
    - `positions`, shape (B, size), int32: of each token in its document; 0 for padding. A document that was cut starts
      at 0 in each row;
    - `segments`, shape (B, size), int32: 1 for the first document of a row, 2 for the second one; 0 for padding;
    - `labels`, shape (B, size): see `labels`.

    With the layout 'flat', the documents of all rows follow each other without padding. `tokens`, `positions` and
    `labels` have the shape (T,). `cu_seqlens` contains 0 and the end of each document, int32. `max_seqlen` is the
    length of the longest document, an int. If the sampler has `align`, each document is padded to a multiple of it, and
    `cu_seqlens` and `max_seqlen` count this padding.

    Args:
        layout: 'rows' or 'flat'.
        labels: 'shift': the label of a token is the next token of its document, also if the document was cut there;
            `ignore` for the last one and for padding. 'same': the token itself, for models that shift; `ignore` for
            padding. Such a model predicts the first token of a document from the one before, unless it masks that.
            None: no labels.
        pad: the token of the padding.
        ignore: the label that the loss leaves out.
        dtype: of the tokens and the labels.

    >>> from gluonloader.types import PackedRow
    >>> row = PackedRow(documents=(0, 1), starts=(0, 0), stops=(3, 2), size=6)
    >>> batch = PackRows()([Segments(row, [np.array([5, 3, 8]), np.array([1, 7])])])
    >>> batch["tokens"], batch["labels"]
    (array([[5, 3, 8, 1, 7, 0]]), array([[   3,    8, -100,    7, -100, -100]]))
    >>> batch["segments"].tolist(), batch["positions"].tolist()
    ([[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]])
    """

    _parts = ()

    def __init__(
        self,
        layout: Layout = "rows",
        labels: Labels | None = "shift",
        *,
        pad: int = 0,
        ignore: int = -100,
        dtype: DTypeLike = np.int64,
    ) -> None:
        if layout not in ("rows", "flat"):
            raise bad_argument("layout", layout, "must be 'rows' or 'flat'")
        if labels not in ("shift", "same", None):
            raise bad_argument("labels", labels, "must be 'shift', 'same' or None")
        self.layout, self._labels = layout, labels
        self._pad, self._ignore = check_int("pad", pad, None), check_int("ignore", ignore, None)
        self._dtype = np.dtype(dtype)
        self._identity = {"layout": layout, "labels": labels, "pad": self._pad, "ignore": self._ignore}
        if self._dtype.kind not in "iu" or (labels is not None and ignore < np.iinfo(self._dtype).min):
            raise bad_argument("dtype", dtype, "must be a dtype of ints that has room for `ignore`, e.g. 'int32'")

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Makes the batch of at least one row.

        Raises:
            BatchifyError: a sample is not that of a row.
        """
        for number, sample in enumerate(samples):
            if not isinstance(sample, Segments):
                what = f"it is a {type(sample).__name__}, but PackRows joins the samples of a PackedDataset"
                raise BatchifyError(f"{what}; pass PackedDataset(dataset) to the loader", number)
        places = _Places(samples, padded=self.layout == "rows")
        shape = (len(samples), samples[0].row.size) if self.layout == "rows" else (places.total,)
        batch: dict[str, Any] = {"tokens": empty(shape, self._dtype), "positions": empty(shape, np.int32)}
        places.fill(batch["tokens"].reshape(-1), self._pad)
        places.number(batch["positions"].reshape(-1))
        if self.layout == "rows":
            batch["segments"] = empty(shape, np.int32)
            places.mark(batch["segments"].reshape(-1))
        if self._labels is not None:
            batch["labels"] = empty(shape, self._dtype)
            self._label(batch["tokens"].reshape(-1), places, batch["labels"].reshape(-1))
        if self.layout == "flat":
            batch["cu_seqlens"] = empty(len(places.starts) + 1, np.int32)
            batch["cu_seqlens"][:] = [*places.starts.tolist(), places.total]
            batch["max_seqlen"] = int(np.diff(batch["cu_seqlens"]).max())
        return batch

    def _label(self, tokens: NDArray[Any], places: _Places, labels: NDArray[Any]) -> None:
        if self._labels == "same":
            labels[:] = tokens
        else:
            labels[:-1] = tokens[1:]
            last = places.starts + places.lengths - 1
            labels[last] = [self._ignore if following is None else following for following in places.following]
        for start, stop in places.gaps:
            labels[start:stop] = self._ignore

    @short_repr
    def __repr__(self) -> str:
        return call(self, *arguments(layout=self.layout, labels=self._labels))


class _Places:
    """Where each document lies in the tokens of all rows.

    Attributes:
        starts, lengths: of the documents.
        following: the token after each document's last token in the batch, if the document goes on; otherwise None.
        gaps: the start and the end of the padding between them.
        total: number of all tokens, with the padding.
    """

    def __init__(self, samples: Sequence[Segments], padded: bool) -> None:
        self._tokens = [tokens for sample in samples for tokens in sample.tokens]
        lengths: list[int] = []
        starts: list[int] = []
        numbers: list[int] = []
        self.gaps: list[tuple[int, int]] = []
        at = 0
        for sample in samples:
            row, end = sample.row, at + sample.row.size
            for number, length in enumerate(row.lengths, 1):
                starts.append(at)
                lengths.append(length)
                numbers.append(number)
                at += length
                if gap := -length % row.align:
                    self.gaps.append((at, at + gap))
                    at += gap
            if padded and at < end:
                self.gaps.append((at, end))
                at = end
        self.total = at
        self.starts, self.lengths = np.array(starts), np.array(lengths)
        self._numbers = numbers
        self.following = [
            int(tokens[length]) if len(tokens) > length else None
            for tokens, length in zip(self._tokens, lengths, strict=True)
        ]

    def fill(self, out: NDArray[Any], pad: int) -> None:
        """Writes the tokens."""
        for start, length, tokens in zip(self.starts.tolist(), self.lengths.tolist(), self._tokens, strict=True):
            out[start : start + length] = tokens[:length]
        self._fill_gaps(out, pad)

    def number(self, out: NDArray[Any]) -> None:
        """Writes the position of each token in its document."""
        numbers = np.arange(self.lengths.max(), dtype=out.dtype)
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            out[start : start + length] = numbers[:length]
        self._fill_gaps(out, 0)

    def mark(self, out: NDArray[Any]) -> None:
        """Writes the number of each token's document in its row, from 1."""
        for start, length, number in zip(self.starts.tolist(), self.lengths.tolist(), self._numbers, strict=True):
            out[start : start + length] = number
        self._fill_gaps(out, 0)

    def _fill_gaps(self, out: NDArray[Any], value: int) -> None:
        for start, stop in self.gaps:
            out[start:stop] = value
