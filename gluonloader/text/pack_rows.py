"""`PackRows` makes batches of the rows of a `PackedDataset`, as trainers of language models read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..batchify.arrays import misfit
from ..checks import as_dtype, check_int
from ..describe import arguments, call, short_repr
from ..errors import BatchifyError, a_class, bad_argument
from ..memory import empty
from ..segments import Segments
from .documents import OF_LOSS

Layout = Literal["rows", "flat", "transformers"]
Labels = Literal["shift", "same"]
Positions = Literal["piece", "document"]

_OF_TRANSFORMERS: Final = {"tokens": "input_ids", "positions": "position_ids"}
_LENGTHS_OF_TRANSFORMERS: Final = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
_OWN_OF_TRANSFORMERS: Final = frozenset({*_OF_TRANSFORMERS.values(), *_LENGTHS_OF_TRANSFORMERS})
_OWN: Final = frozenset({"tokens", "positions", "segments", "cu_seqlens", "max_seqlen"})


class PackRows:
    """Makes a dict of arrays of rows of documents; write `batchify_fn=PackRows()`.

    With the layout 'rows', for B rows of `size` tokens:

    - `tokens`, shape (B, size): the tokens, then padding;
    - `positions`, shape (B, size), int32: see `positions`; 0 for padding;
    - `segments`, shape (B, size), int32: 1 for the first document of a row, 2 for the second one; 0 for padding;
    - `labels`, shape (B, size): see `labels`.

    With the layout 'flat', the documents of all rows follow each other without padding. `tokens`, `positions` and
    `labels` have the shape (T,). `cu_seqlens` contains 0 and the end of each document, int32. `max_seqlen` is the
    length of the longest document, an int. If the sampler has `align`, each document is padded to a multiple of it, and
    `cu_seqlens` and `max_seqlen` count this padding.

    The layout 'transformers' is the same with the names that models of transformers take for flash attention:
    `input_ids`, `position_ids` and `labels` of shape (1, T), `cu_seq_lens_q` and `cu_seq_lens_k`, `max_length_q` and
    `max_length_k`.

    Other fields of the documents follow their tokens, with 0 in the padding; for values of shape (N, ...) the batch has
    the shape (B, size, ...), or (T, ...). Three fields say how tokens are predicted:

    - `labels`: the label of each token, instead of the token itself;
    - `loss_mask`: where it is 0, the label is `ignore`, unless the document has `labels`;
    - `weights`: factors for the loss.

    With labels='shift', all three are shifted: at the place of a token is the value of the next one, and 0 at the last
    token of a document. With labels='same', `loss_mask` and `weights` are 0 at its first token. A document without
    `loss_mask` or `weights` has ones there, if another one in the batch has that field.

    Args:
        layout: 'rows', 'flat' or 'transformers'.
        labels: 'shift': the label of a token is the next token of its document, also if the document was cut there;
            `ignore` for the last one and for padding. 'same': the token itself, for models that shift, as those of
            transformers do; `ignore` for padding, and for the first token of a document in a row, which such a model
            would predict from another document. None: no labels.
        pad: the token of the padding.
        ignore: the label that the loss leaves out.
        dtype: of the tokens and the labels; a token that does not fit is an error.
        positions: 'piece': a document that was cut starts at 0 in each row; 'document': it goes on.

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
        positions: Positions = "piece",
    ) -> None:
        if layout not in ("rows", "flat", "transformers"):
            raise bad_argument("layout", layout, "must be 'rows', 'flat' or 'transformers'")
        if labels not in ("shift", "same", None):
            raise bad_argument("labels", labels, "must be 'shift', 'same' or None")
        if layout == "transformers" and labels == "shift":
            raise bad_argument(
                "labels", labels, "the models of transformers shift labels themselves; pass labels='same'"
            )
        if positions not in ("piece", "document"):
            raise bad_argument("positions", positions, "must be 'piece' or 'document'")
        self.layout, self._labels, self._positions = layout, labels, positions
        self._pad, self._ignore = check_int("pad", pad, None), check_int("ignore", ignore, None)
        self._dtype = as_dtype(dtype)
        self._identity = {
            "layout": layout, "labels": labels, "pad": self._pad, "ignore": self._ignore, "positions": positions,
        }  # fmt: skip
        if self._dtype.kind not in "iu" or (labels is not None and not _fits(self._ignore, self._dtype)):
            raise bad_argument("dtype", dtype, "must be a dtype of ints that has room for `ignore`, such as np.int32")
        if not _fits(self._pad, self._dtype):
            raise bad_argument("pad", pad, f"does not fit in dtype={self._dtype.name}; pass another one")

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Makes the batch of at least one row.

        Raises:
            BatchifyError: a sample is not that of a row, a token does not fit in the dtype, or the fields of documents
                do not fit together.
        """
        for number, sample in enumerate(samples):
            if not isinstance(sample, Segments):
                what = f"it is {a_class(sample)}, but PackRows joins the samples of a PackedDataset"
                raise BatchifyError(f"{what}; pass PackedDataset(dataset) to the loader", number)
        places = _Places(samples, padded=self.layout == "rows")
        shape = (len(samples), samples[0].row.size) if self.layout == "rows" else (places.total,)
        kind = np.int64 if self.layout == "transformers" else np.int32
        batch: dict[str, Any] = {"tokens": empty(shape, self._dtype), "positions": empty(shape, kind)}
        places.put(places.tokens, batch["tokens"].reshape(-1), self._pad)
        places.spread(places.positions(self._positions == "document"), batch["positions"].reshape(-1), 0)
        if self.layout == "rows":
            batch["segments"] = empty(shape, np.int32)
            places.spread(np.repeat(places.numbers, places.lengths), batch["segments"].reshape(-1), 0)
        if self._labels is not None:
            batch["labels"] = empty(shape, self._dtype)
            own = list(map(self._labels_of, places.tokens, places.fields)) if places.fields else places.tokens
            places.put(own, labels := batch["labels"].reshape(-1), self._ignore, shift=self._labels == "shift")
            if self._labels == "same":
                labels[places.starts] = self._ignore
        for name in places.names:
            if name in _OWN or (self.layout == "transformers" and name in _OWN_OF_TRANSFORMERS):
                raise BatchifyError(f"documents have a field {name!r}, as the batch has; give the field another name")
            if name != "labels":
                batch[name] = self._field(name, places, shape)
        if self.layout != "rows":
            batch["cu_seqlens"] = empty(len(places.starts) + 1, np.int32)
            batch["cu_seqlens"][:-1], batch["cu_seqlens"][-1] = places.starts, places.total
            batch["max_seqlen"] = int(np.diff(batch["cu_seqlens"]).max())
        return _as_transformers(batch) if self.layout == "transformers" else batch

    def _labels_of(self, tokens: NDArray[Any], fields: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """The labels of the tokens of a document, before they are shifted."""
        if "labels" in fields:
            return fields["labels"]
        mask = fields.get("loss_mask")
        return tokens if mask is None else np.where(mask != 0, tokens.astype(np.int64), self._ignore)

    def _field(self, name: str, places: _Places, shape: tuple[int, ...]) -> NDArray[Any]:
        """The values of a field in the batch."""
        of_loss = name in OF_LOSS
        values = places.values(name, 1 if of_loss else None)
        if len(shapes := {array.shape[1:] for array in values}) > 1:
            raise BatchifyError(f"the values of field {name!r} have different shapes: {sorted(shapes)}")
        rest, dtypes = shapes.pop(), {array.dtype for array in values}
        dtype = np.result_type(*dtypes)
        if dtype.kind == "f" and all(kind.kind in "iu" for kind in dtypes):
            found = " and ".join(sorted(kind.name for kind in dtypes))
            what = f"the values of field {name!r} are {found}, and no dtype of ints holds them all"
            raise BatchifyError(f"{what}; convert the field to one dtype in all documents")
        out = empty((*shape, *rest), dtype)
        places.put(values, flat := out.reshape(-1, *rest), 0, shift=of_loss and self._labels == "shift")
        if of_loss and self._labels == "same":
            flat[places.starts] = 0
        return out

    @short_repr
    def __repr__(self) -> str:
        return call(self, *arguments(layout=self.layout, labels=self._labels))


def _as_transformers(batch: dict[str, Any]) -> dict[str, Any]:
    """The arrays of the layout 'flat' with the names and shapes of transformers."""
    ends, longest = batch.pop("cu_seqlens"), batch.pop("max_seqlen")
    named = {_OF_TRANSFORMERS.get(name, name): values[None] for name, values in batch.items()}
    return named | dict(zip(_LENGTHS_OF_TRANSFORMERS, (ends, ends, longest, longest), strict=True))


def _fits(number: int, dtype: np.dtype[Any]) -> bool:
    return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


class _Places:
    """Where each document lies in the tokens of all rows.

    Attributes:
        starts, lengths: of the documents.
        numbers: of each document in its row, from 1.
        tokens: of each document, and the next one if the document is cut after them.
        fields: of each document; empty if no document has fields.
        names: of all fields.
        total: number of all tokens, with the padding.
    """

    def __init__(self, samples: Sequence[Segments], padded: bool) -> None:
        self._samples = samples
        self.tokens = [tokens for sample in samples for tokens in sample.tokens]
        self.fields: list[Mapping[str, NDArray[Any]]] = []
        if any(sample.fields for sample in samples):
            self.fields = [fields for sample in samples for fields in sample.fields or [{}] * len(sample.tokens)]
        self.names = list(dict.fromkeys(name for fields in self.fields for name in fields))
        lengths: list[int] = []
        numbers: list[int] = []
        padding: list[int] = []  # how much of it lies before each document
        self._cut: list[int] = []
        # The start and the end of the padding after a document, and the number of tokens before it.
        self._gaps: list[tuple[int, int, int]] = []
        at = count = 0
        for sample in samples:
            row, end, own = sample.row, at + sample.row.size, sample.row.lengths
            self._cut += [len(lengths) + place for place in row.cut]
            lengths += own
            numbers += range(1, len(own) + 1)
            if row.align == 1:
                padding += [at - count] * len(own)
                at, count = at + sum(own), count + sum(own)
            else:
                for length in own:
                    padding.append(at - count)
                    at, count = at + length, count + length
                    at = self._pad(at, at + -length % row.align, count)
            at = self._pad(at, end if padded else at, count)
        self.total = at
        self.lengths, self.numbers = np.array(lengths), np.array(numbers, np.int32)
        self.starts = np.cumsum(self.lengths) - self.lengths + padding

    def _pad(self, start: int, stop: int, count: int) -> int:
        """Notes padding between two places, after so many tokens; returns where it ends."""
        if start < stop:
            self._gaps.append((start, stop, count))
        return stop

    def put(self, values: Sequence[NDArray[Any]], out: NDArray[Any], padding: int, shift: bool = False) -> None:
        """Writes the values of all documents.

        Args:
            values: for each document one for each token, and the next one if the document is cut.
            padding: the value between documents.
            shift: write for each token the value of the next one; `padding` for the last token of a document.

        Raises:
            BatchifyError: a value does not fit in the dtype of `out`.
        """
        own = self._checked(values, out.dtype)
        for place in self._cut:
            own[place] = own[place][:-1]
        if not shift:
            self.spread(np.concatenate(own), out, padding)
            return
        self.spread(np.concatenate([*own, own[0][:1]])[1:], out, padding)
        last = self.starts + self.lengths - 1
        out[last] = padding
        for place in self._cut:
            out[last[place]] = values[place][-1]

    def spread(self, values: NDArray[Any], out: NDArray[Any], padding: int) -> None:
        """Writes the values of all tokens, one after another, and the padding."""
        place = token = 0
        for start, stop, count in self._gaps:
            out[place:start] = values[token:count]
            out[start:stop] = padding
            place, token = stop, count
        out[place:] = values[token:]

    def _checked(self, values: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
        """The values, which can be joined and written to an array of this dtype without a change."""
        if all(np.can_cast(kind, dtype) for kind in {array.dtype for array in values}):
            return list(values)
        for array, document in zip(values, self._documents(), strict=True):
            if array.dtype.kind not in "biu":
                what = f"document {document} has tokens or labels of dtype {array.dtype}"
                raise BatchifyError(f"{what}, but they must be ints; convert them by a transform of the documents")
        if (found := misfit(values, dtype)) is not None:
            number, token = found
            what = f"document {self._documents()[number]} has the token {token}, which does not fit"
            raise BatchifyError(f"{what} in dtype={dtype.name}; pass another dtype to PackRows")
        return [array.astype(dtype, copy=False) for array in values]  # NumPy joins int64 and uint64 to floats

    def _documents(self) -> list[int]:
        return [document for sample in self._samples for document in sample.row.documents]

    def values(self, name: str, default: int | None) -> list[NDArray[Any]]:
        """The values of a field of each document.

        Args:
            default: the value of all tokens of a document without this field; None: that is an error.

        Raises:
            BatchifyError: a document lacks the field.
        """
        lacking = [number for number, fields in zip(self._documents(), self.fields, strict=True) if name not in fields]
        if lacking and default is None:
            what = f"document {lacking[0]} has no field {name!r}, but another one in the batch has it"
            raise BatchifyError(f"{what}; add it to all documents, or remove it from all")
        dtype = next(fields[name].dtype for fields in self.fields if name in fields)
        return [
            fields[name] if name in fields else np.full(len(tokens), default, dtype)
            for tokens, fields in zip(self.tokens, self.fields, strict=True)
        ]

    def positions(self, in_document: bool) -> NDArray[Any]:
        """The position of each token in its document, or in the piece of it that is in the row."""
        ends = np.cumsum(self.lengths, dtype=np.int32)
        positions: NDArray[Any] = np.arange(ends[-1], dtype=np.int32)
        first = ends - self.lengths.astype(np.int32)
        if in_document:
            first -= np.array([start for sample in self._samples for start in sample.row.starts], np.int32)
        positions -= np.repeat(first, self.lengths)
        return positions
