"""The length of a dataset; and its attribute `lengths`: the number of tokens of each sample, known before it is read.

Samplers that pack documents or mix datasets by tokens need these. A `TokenDataset` has both, and so do the datasets
that are made of such datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .declared import defining_namespace
from .indices import checksum_of_array, is_int_array

_BLOCKS: Final = 64  # of lengths: a state contains a checksum of so many blocks; each may be a disk read
_BLOCK: Final = 4096  # lengths in a block


def length_if_known(dataset: Any) -> int | None:
    """The length of a dataset; None if it has none or, as in tf.data, the length is unknown."""
    try:
        return len(dataset)
    except TypeError:
        return None


class computed_lengths:  # noqa: N801, a decorator
    """Decorates a method that computes the attribute `lengths`, or raises an AttributeError if it is not known.

    The attribute is computed at each use, since a kept array would be pickled for the workers. A subclass may set its
    own. Subclasses that define `__getitem__` but not `lengths` do not inherit it, since their samples differ.
    """

    def __init__(self, method: Callable[[Any], NDArray[Any]]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    def __get__(self, dataset: Any, kind: type) -> Any:
        if dataset is None:
            return self
        try:
            if "lengths" not in defining_namespace(kind, "__getitem__", "lengths"):
                raise AttributeError("its __getitem__ may change them; define `lengths` in the class, too")
            return self._method(dataset)
        except AttributeError as error:
            raise AttributeError(f"the lengths of this {kind.__name__} are not known: {error}") from None


def known_lengths(dataset: Any) -> NDArray[Any]:
    """The attribute `lengths` of any dataset; an AttributeError says why it has none."""
    lengths = dataset.lengths
    if not is_int_array(lengths) or len(lengths) != len(dataset):
        what = f"{type(dataset).__name__}.lengths is not an array of {len(dataset)} ints"
        raise AttributeError(f"{what}, one for each sample")
    return lengths  # type: ignore[no-any-return]


def lengths_if_known(dataset: Any) -> NDArray[Any] | None:
    """The attribute `lengths` of any dataset; None if it has none."""
    try:
        return known_lengths(dataset)
    except AttributeError:
        return None


def checksum_of_lengths(lengths: NDArray[Any]) -> int:
    """A checksum of blocks of lengths, evenly spread; of all lengths if they are at most `_BLOCKS * _BLOCK`."""
    count = len(lengths)
    starts = np.linspace(0, max(count - _BLOCK, 0), min(_BLOCKS, -(-count // _BLOCK))).astype(np.int64)
    checksum = 0
    for start in starts.tolist():
        checksum = checksum_of_array(np.asarray(lengths[start : start + _BLOCK], np.int64), checksum)
    return checksum
