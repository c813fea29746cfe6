"""A document as a dataset of the user returns it: its tokens, and other values of each token, such as labels.

    sample --document_of--> Document --segments_of, for the documents of a row--> Segments

`PackedDataset` reads the documents of a row like this, and `PackedStream` those of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import TokenError, a_class
from ..segments import PackedRow, Segments

OF_LOSS: Final = ("labels", "loss_mask", "weights")  # how tokens are predicted, see `PackRows`
_OTHER_MASKS: Final = ("assistant_masks", "completion_mask")  # names of Hugging Face for a mask of the loss

Fields = dict[str, NDArray[Any]]  # values of each token, by name; each of shape (N,) or (N, ...)


@dataclass(slots=True)
class Document:
    """The tokens of a document, shape (N,), and its other fields."""

    tokens: NDArray[Any]
    fields: Fields = field(default_factory=dict)

    def from_token(self, start: int) -> Document:
        """The document from one of its tokens on."""
        return Document(self.tokens[start:], {name: values[start:] for name, values in self.fields.items()})


def document_of(sample: Any, name: Any, number: int) -> Document:
    """The document of a sample.

    Args:
        sample: the tokens or, if `name` is passed, a dict or a tuple with them.
        name: of the field with the tokens. The other fields of a dict that are arrays or lists of numbers are fields of
            the document; texts and single numbers are left out, and so is `attention_mask`, which is 1 everywhere.
        number: of the document, for error texts.

    Raises:
        TokenError: the tokens are no ints of shape (N,), or a field does not have one value for each token.
    """
    try:
        tokens = np.asarray(sample if name is None else sample[name])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        what = f"document {number} is {described(sample)} without an array of tokens in field={name!r}"
        raise TokenError(f"{what}; pass field=..., which has them") from error
    if tokens.shape == (0,):
        tokens = tokens.astype(np.int64)  # an empty list becomes an array of floats
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        found = f"an array of shape {tokens.shape} and dtype {tokens.dtype}"
        first = next(iter(sample)) if name is None and isinstance(sample, Mapping) and sample else None
        named = "" if first is None else f", e.g. field={first!r}"
        what = f"document {number} is {found if first is None else described(sample)}"
        raise TokenError(f"{what}, but tokens are ints of shape (N,); check `field`{named}")
    return Document(tokens, {} if name is None else _fields_of(sample, name, len(tokens), number))


def described(sample: Any) -> str:
    """The class of a sample, with the first keys of a dict, for error texts."""
    return a_class(sample) + (f" with the keys {list(sample)[:20]}" if isinstance(sample, Mapping) else "")


def _fields_of(sample: Any, tokens: Any, length: int, number: int) -> Fields:
    names = sample if isinstance(sample, Mapping) else range(len(sample)) if isinstance(sample, (tuple, list)) else ()
    fields = {}
    for name in names:
        value = sample[name]
        if name == tokens or value is None:
            continue
        if name in _OTHER_MASKS:
            what = f"document {number} has a field {name!r}, which would not change what is trained on"
            raise TokenError(f"{what}; rename it to 'loss_mask' by a transform of the documents, or remove it")
        values = _as_numbers(value, f"document {number}: field {name!r}")
        if name in OF_LOSS and (values is None or values.ndim != 1):
            found = type(value).__name__ if values is None else f"shape {values.shape}"
            what = f"document {number}: field {name!r} ({found}) has not one number for each token"
            raise TokenError(f"{what}; give it such numbers or another name, or remove it by a transform")
        if values is None:
            continue
        if not isinstance(name, str):
            what = f"document {number}: besides the tokens, field {name!r} of its {type(sample).__name__} is an array"
            raise TokenError(f"{what}; return a dict with names such as 'input_ids' and 'labels', or the tokens alone")
        if len(values) != length:
            what = f"document {number} has {length} tokens, but {len(values)} values in field {name!r}"
            raise TokenError(f"{what}; each token needs one, or remove the field by a transform of the documents")
        if name != "attention_mask":
            fields[name] = values
        elif not values.all():
            what = f"document {number} has padding, where its `attention_mask` is 0"
            raise TokenError(f"{what}; tokenize the documents without padding, since rows are packed without it")
    return fields


def _as_numbers(values: Any, what: str) -> NDArray[Any] | None:
    """The values as an array; None if they are no array or list of numbers.

    Raises:
        TokenError: they are an array that NumPy cannot read; the text starts with `what`.
    """
    if isinstance(values, (str, bytes, Mapping)):
        return None
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of several lengths, or a tensor
        if hasattr(values, "dtype"):
            found = f"{what} is {a_class(values)} of {values.dtype} that NumPy cannot read ({error})"
            raise TokenError(f"{found}; convert it, e.g. by x.detach().float()") from error
        return None
    return array if array.ndim and array.dtype.kind in "biuf" else None


def segments_of(row: PackedRow, tokens: Sequence[NDArray[Any]], fields: Sequence[Fields]) -> Segments:
    """The sample of a row, from the tokens and the fields of each of its documents.

    Raises:
        TokenError: a document has another length than the one by which the row was planned.
    """
    if not row.cut and not any(row.starts) and [array.shape for array in tokens] == [(stop,) for stop in row.stops]:
        parts = list(tokens)  # whole documents, as most are
    else:
        parts = list(map(_part_of, repeat(row), range(len(tokens)), tokens))
    if not any(fields):
        return Segments(row, parts)
    places = zip(row.starts, row.stops, fields, strict=True)
    return Segments(
        row,
        parts,
        [{name: values[start : stop + 1] for name, values in named.items()} for start, stop, named in places],
    )


def _part_of(row: PackedRow, place: int, tokens: NDArray[Any]) -> NDArray[Any]:
    """The tokens of a document in a row, and the next one if the document is cut after them."""
    start, stop, is_cut = row.starts[place], row.stops[place], place in row.cut
    if tokens.ndim != 1 or (len(tokens) <= stop if is_cut else len(tokens) != stop):
        what = f"document {row.documents[place]} has shape {tokens.shape}, but the sampler expects"
        how_many = f"{'more than ' * is_cut}{stop} tokens"
        raise TokenError(f"{what} {how_many}; pass the lengths of this dataset to the PackingSampler")
    return tokens[start : stop + 1]
