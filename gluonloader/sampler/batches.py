"""`BatchSampler`: cuts the indices of a sampler into batches, and carries the last few over into the next epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from ..checks import LastBatch, check_int, check_last_batch
from ..errors import bad_state, other_words
from ..state import field, same
from .base import Sampler, SizedIterable, start_order
from .passes import BatchPass, Pass
from .saved import PATH, inner_state, load_saved_pass, saved_pass

__all__ = ["BatchSampler", "iterate"]

_JSON_KEYS: Final = (int, str, float, bool, type(None))  # indices of these types survive JSON


class BatchSampler(Sampler):
    """Cuts the indices of a sampler into lists of `batch_size`.

    Args:
        sampler: any sized iterable of indices.
        batch_size: indices in a batch, at least 1.
        last_batch: what happens to a last batch that is too short: 'keep' yields it as it is, 'discard' drops it,
            'rollover' moves its indices to the start of the next pass. A pass that stops early changes nothing:
            the next one starts with the same carried indices.

    >>> batches = BatchSampler(range(5), 2, "rollover")
    >>> list(batches)
    [[0, 1], [2, 3]]
    >>> len(batches), list(batches)
    (3, [[4, 0], [1, 2], [3, 4]])
    """

    @other_words(drop_last='give last_batch="discard"')
    def __init__(self, sampler: SizedIterable, batch_size: int, last_batch: LastBatch = "keep") -> None:
        right = "give the number of samples in a batch, an int >= 1"
        self.batch_size = check_int("batch_size", batch_size, 1, right)
        self.last_batch: LastBatch = check_last_batch(last_batch)
        self.sampler = sampler
        self.carried: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batches = self.begin()
        yield from batches
        batches.commit()

    def begin(self) -> BatchPass:
        """Starts a pass that carries indices over only when `commit` is called.

        A loader draws batches before it delivers them, and calls `commit` after it has delivered the last one.
        """
        order, read_ahead = start_order(self.sampler)
        indices = iter(self.sampler) if order is None else Pass(order, len(self.sampler), read_ahead)
        return BatchPass(self, indices)

    def __len__(self) -> int:
        samples = len(self.sampler) + len(self.carried)
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.sampler).__name__} by {self.batch_size})"

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON.

        Raises:
            TypeError: JSON cannot hold an index that is carried over.
        """
        carried = [key.item() if isinstance(key, np.generic) else key for key in self.carried]
        for key in carried:
            if not isinstance(key, _JSON_KEYS):
                raise TypeError(
                    f"the index {key!r} is carried over into the next epoch, and a position holds only indices that "
                    "are int, str, float, bool or None; use such indices, or last_batch='keep' or 'discard'"
                )
        about = {"batch_size": self.batch_size, "last_batch": self.last_batch}
        return {**about, "carried": carried, "sampler": saved_pass(self.sampler)}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Makes the next pass repeat the one that `pass_state` described; see `load_saved_pass`.

        Args:
            state: what `pass_state` returned.
            drawn: how many batches of that pass the caller does not need again.

        Returns:
            how many batches of the next pass the caller still has to skip.

        Raises:
            ValueError: the state does not fit; the text names the field, and nothing has changed.
        """
        for name in ("batch_size", "last_batch"):
            same(state, name, getattr(self, name), f"the {type(self).__name__} here", PATH)
        inner = inner_state(state)
        carried = self._check_carried(state, inner)
        indices = max(drawn * self.batch_size - len(carried), 0)
        # A sampler that skips the drawn indices itself is also past the carried ones, which came before them.
        moved = load_saved_pass(self.sampler, inner, indices) < indices
        self.carried = [] if moved else carried
        return 0 if moved else drawn

    def _check_carried(self, state: Mapping[str, Any], inner: Mapping[str, Any]) -> list[Any]:
        carried = field(state, "carried", PATH)
        most = self.batch_size - 1 if self.last_batch == "rollover" else 0
        listed = isinstance(carried, list) and len(carried) <= most
        if not listed or not all(isinstance(key, _JSON_KEYS) for key in carried):
            raise bad_state(PATH + "carried", carried, f"must be a list of at most {most} indices")
        here = saved_pass(self.sampler) if carried else {}
        for name in ("num_shards", "index") if carried else ():
            ours = here.get(name)  # not getattr(): a list has a method called `index`
            if inner.get(name) != ours:
                right = f"carried over by {name}={inner.get(name)}, but here {name}={ours}; load one that carries none"
                raise bad_state(PATH + "carried", carried, right)
        return list(carried)


def iterate(batch_sampler: Iterable[Any]) -> Iterator[Any]:
    """One pass over any batch sampler; that of a `BatchSampler` is a `BatchPass`, to be committed after delivery."""
    unchanged = getattr(type(batch_sampler), "__iter__", None) is BatchSampler.__iter__  # a subclass may override it
    return batch_sampler.begin() if unchanged and isinstance(batch_sampler, BatchSampler) else iter(batch_sampler)
