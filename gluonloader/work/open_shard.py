"""`OpenShard`: one shard of an iterable dataset, opened at its start or at a hint, and read sample by sample.

It follows the convention of Hugging Face datasets and torchdata: `set_epoch`, `load_state_dict` and `iter` are called
in this order, and `state_dict` during the iteration. Each is called on the dataset or its iterator, whichever has it.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from .. import frameworks
from ..dataset.iterable import Step, takes, through
from ..dataset.opening import NewestIterators, Opened, part_of
from ..describe import class_name
from ..interrupts import from_signal_handler
from ..tree import leaves
from .task import Chunk, Hint

_readers: Final[dict[int, object]] = {}  # the source that reads an iterator (not copyable), by the iterator's id


class OpenShard:
    """One shard of a dataset, opened at a hint; `dataset` and `steps` are the result of `unwrap`."""

    def __init__(self, dataset: Any, steps: tuple[Step, ...], chunk: Chunk, hint: Hint | None) -> None:
        self._name = class_name(dataset)
        counted = takes(steps)
        part = part_of(dataset, chunk.num_shards, chunk.shard, chunk.epoch, cut=counted)
        shard = part.dataset
        # If `cut`, the shard is cut out of a part that other shards read, too. Between two samples lie those of others.
        self.cut = part.stride > 1
        self._skip_before, self._skip_after = part.start, part.stride - 1 - part.start
        self._is_iterator = hasattr(shard, "__next__")
        # A dataset that is an iterator has a method `reset`. Any other iterator comes from `shard`, and has to be new.
        self._is_reset = self._is_iterator and callable(getattr(shard, "reset", None))
        if self._is_reset:
            self._token = _readers[id(shard)] = object()
            shard.reset()
        self._shard, self._opened = shard, Opened(shard, self._name, stateful=not counted)
        self._iterator = self._opened.samples
        if hint is not None and hint.group:
            self._opened.load(hint.state)
        self._samples = through(steps, self._opened.samples)
        # A hash of the first sample of the dataset, if all shards are cut out of it; 0 otherwise.
        is_whole = self.cut and part.stride == chunk.num_shards
        self.first = None if is_whole and not (hint and hint.group) else 0
        self._skipped_error: BaseException | None = None  # that of the previous sample, in another shard
        self._ended = False  # while samples were skipped

    @property
    def stateful(self) -> bool:
        """Whether the dataset can be opened at a hint."""
        return self._opened.stateful

    def hint(self, group: int, last: Hint | None) -> Hint | None:
        """The hint before the next group, `group`; `last` if the source has ended, since its state is then useless."""
        # The iterator of a DataLoader has no state after its last batch.
        has_ended = self._ended or getattr(self._opened.samples, "ended", False) is True
        return last if has_ended or not self.stateful else Hint(group, self._opened.state())

    def check_alone(self) -> None:
        """Raises a RuntimeError if another stream has started to read the same iterator."""
        if self._is_reset and _readers.get(id(self._shard)) is not self._token:
            raise RuntimeError(
                f"{self._name} is a single iterator, and another shard or iteration in this process reads it; "
                "pass a function that makes a new iterator: IterableDataset(make)"
            )

    def check_new(self, newest: NewestIterators, shard: int) -> None:
        """Adds its iterator to those of the other shards; RuntimeError if it is one of them, so it was read before."""
        if not self._is_reset:
            newest.add(shard, self._iterator, f"{self._name}.{'shard' if self._is_iterator else '__iter__'}")

    def next(self) -> Any:
        """The next sample of this shard. If the shard is cut out, this also reads the samples of the other shards."""
        if not self.cut:
            return next(self._samples)
        self._skip(self._skip_before)
        try:
            return self._read()
        except StopIteration:
            self._ended = True
            error, self._skipped_error = self._skipped_error, None
            raise error or StopIteration from None
        finally:
            self._skip(self._skip_after)

    def _read(self) -> Any:
        if self._ended:
            raise StopIteration
        sample, self._skipped_error = next(self._samples), None
        if self.first is None:
            self.first = _hash(sample)
        return sample

    def _skip(self, count: int) -> None:
        """Reads samples of other shards. Only the shard of a sample reports its error, unless that ends the source."""
        for _ in range(count):
            try:
                self._read()
            except StopIteration:
                self._ended = True
                return
            except BaseException as error:
                if from_signal_handler(error):
                    raise
                self._skipped_error = error


def _hash(sample: Any) -> int:
    """A hash, never 0 and equal in all processes, of numbers, text and arrays, and of the types of all other leaves."""
    return zlib.crc32(b";".join(_bytes_of(leaf) for _, leaf in leaves(sample))) or 1


def _bytes_of(leaf: Any) -> bytes:
    framework = frameworks.owner(type(leaf))
    leaf = leaf if framework is None else framework.to_numpy(leaf)
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return np.ascontiguousarray(leaf).tobytes()
    comparable = isinstance(leaf, (int, float, complex, str, bytes, np.generic))
    return (repr(leaf) if comparable else type(leaf).__name__).encode()
