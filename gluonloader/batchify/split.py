"""`Split`: one batch in several parts, for several devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..checks import check_flags, check_functions, check_int
from ..errors import BatchifyError
from .default import Batchify, default_batchify


class Split:
    """A batchify function that cuts the samples into parts and makes one batch of each, one for each device.

    The parts are those of `mxnet.gluon.utils.split_data`: consecutive samples, in order.

    Args:
        num_slice: number of parts, at least 1.
        batchify_fn: makes the batch of one part; None is `default_batchify`.
        even_split: all parts must have the same size. If False, the first parts may have one sample more.

    Raises:
        BatchifyError: the samples cannot be cut into equal parts, or there are fewer samples than parts.

    >>> Split(2)([1, 2, 3, 4])
    [array([1, 2]), array([3, 4])]
    """

    def __init__(self, num_slice: int, batchify_fn: Batchify | None = None, even_split: bool = True) -> None:
        check_functions(batchify_fn=batchify_fn)
        check_flags(even_split=even_split)
        self._slices, self._even = check_int("num_slice", num_slice, 1), bool(even_split)
        self._batchify = batchify_fn or default_batchify

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._batchify,)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        count, parts = len(samples), self._slices
        smaller_size, larger_parts = divmod(count, parts)
        if larger_parts and self._even:
            cure = f"use a batch_size that is a multiple of {parts} with last_batch='discard', or even_split=False"
            raise BatchifyError(f"{count} samples cannot be cut into {parts} equal parts; {cure}")
        if not smaller_size:
            cure = "use a larger batch_size, or last_batch='discard'"
            raise BatchifyError(f"{count} samples are too few for {parts} parts; {cure}")
        bounds = [part * smaller_size + min(part, larger_parts) for part in range(parts + 1)]
        return [self._batch(samples, start, stop) for start, stop in pairwise(bounds)]

    def _batch(self, samples: Sequence[Any], start: int, stop: int) -> Any:
        try:
            return self._batchify(samples[start:stop])
        except BatchifyError as error:
            if error.row is None:
                raise
            raise BatchifyError(error.reason, error.row + start, error.path) from error.__cause__
