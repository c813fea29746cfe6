"""`OrderedStream` reads a dataset with `__getitem__` as a stream, in the order of a sampler.

Its shards and the positions of its iterators are computed, so a resume reads no sample again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..describe import describe, short_repr
from ..errors import add_note, bad_state
from ..messages import message
from ..sampler.base import copy_of, epoch_of, order_of, read_ahead_of
from ..sampler.passes import Pass, length_of
from ..sampler.saved import saved_order
from ..state import check_same, field, int_field


@message(frozen=True, slots=True)
class Indexed:
    """A sample and its index in the dataset."""

    index: Any
    sample: Any


class OrderedStream:
    """A dataset with `__getitem__`, read in the order of a sampler; it yields `Indexed` samples."""

    def __init__(self, dataset: Any, sampler: Any, start: int = 0, stride: int = 1, epoch: int | None = None) -> None:
        self._dataset, self._sampler, self._start, self._stride = dataset, sampler, start, stride
        self._epoch = epoch_of(sampler) if epoch is None else epoch

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    @property
    def _inside(self) -> tuple[Any, ...]:
        return (self._dataset,)

    def shard(self, num_shards: int, index: int) -> OrderedStream:
        start, stride = self._start + index * self._stride, self._stride * num_shards
        return OrderedStream(self._dataset, self._sampler, start, stride, self._epoch)

    def __iter__(self) -> OrderedSamples:
        return OrderedSamples(self._dataset, self._sampler, self._start, self._stride, self._epoch)

    @short_repr
    def __repr__(self) -> str:
        return f"{describe(self._dataset)} in the order of {describe(self._sampler)}"


class OrderedSamples(Iterator[Indexed]):
    """The samples of every `stride`-th key of the order of an epoch, from the key number `start` on."""

    def __init__(self, dataset: Any, sampler: Any, start: int, stride: int, epoch: int) -> None:
        self._dataset, self._sampler, self._start, self._stride = dataset, copy_of(sampler), start, stride
        order = order_of(self._sampler, epoch)  # of a copy, which the user does not change
        assert order is not None, "only samplers whose order is computed are accepted"
        self._keys = Pass(order, length_of(sampler), read_ahead_of(sampler))
        saved = saved_order(sampler, epoch, order)
        # A mixture knows more checkpoints in one process than in another one, but its order is the same.
        self._order = json.loads(json.dumps({name: saved[name] for name in saved if name != "checkpoint"}))
        if isinstance(sampler, (list, tuple, np.ndarray)):
            self._order["keys"] = zlib.crc32(repr(list(sampler)).encode())
        if self._order.get("pending") is not None:
            raise ValueError(
                "sampler: its weights were changed; a PackedStream needs a new MixtureSampler(weights=...)"
            )
        self._seek(0)

    def _seek(self, read: int) -> None:
        """Continues after so many samples."""
        self._keys.seek(self._start + read * self._stride)
        self._read = read

    def __next__(self) -> Indexed:
        key = next(self._keys)
        self._keys.skip(self._stride - 1)
        self._read += 1
        try:
            return Indexed(key, self._dataset[key])
        except StopIteration as error:
            raise RuntimeError(f"document {key!r} of {describe(self._dataset)} raised StopIteration") from error
        except Exception as error:
            add_note(error, f"document {key!r} of {describe(self._dataset)}")
            raise

    def state_dict(self) -> dict[str, Any]:
        return {"read": self._read, "sampler": self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where a state was saved.

        Raises:
            ValueError: the state is that of another order; the text names the difference.
        """
        order = field(state, "sampler")
        for name, ours in self._order.items():
            check_same(order, name, ours, f"this {type(self._sampler).__name__}", "sampler.")
        if order != self._order:
            raise bad_state("sampler", order, f"the order here is {self._order!r:.200}; it must be the same")
        self._seek(int_field(state, "read"))
