"""The order of the samples: passes over torch's samplers, and the state of the generators that they draw from."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from ..comparing import difference, items_of
from ..errors import warn
from ..indices import checksum_of
from ..randomness import PreservedGenerators
from ..sampler import base as own
from ..sampler.saved import has_rank
from ..state import has_state
from .utils_data import data, torch, torchs

_MOST_BYTES: Final = 1 << 20  # in the state of a generator; torch's have a few kB


class TorchOrder:
    """A batch sampler of gluonloader that yields what torch's batch sampler or sampler yields.

    Args:
        index_sampler: torch's batch sampler; or its sampler, if samples are not batched.
        whole: yield each item as the only key of a batch; see `Whole`.
    """

    def __init__(self, index_sampler: Any, whole: bool) -> None:
        self.index_sampler, self.whole = index_sampler, whole
        self._next_pass: _OrderPass | None = None
        self._newest: _OrderPass | None = None
        inner = _inner(index_sampler)
        if has_state(inner) or hasattr(inner, "rank"):
            self.sampler = inner  # its state is saved, and ranks get different random numbers
        for part in chain_of_torch(index_sampler):
            if hasattr(part, "process_index"):  # Accelerate's BatchSamplerShard
                self.num_replicas, self.rank = part.num_processes, part.process_index

    def start_pass(
        self, generators: Sequence[Any], states: Sequence[Any], of_seed: Any, epoch: int | None, iterator: Any
    ) -> None:
        """Makes the next `iter` return a pass over the keys of torch's `iterator`, which has just started.

        Args:
            generators: those from which the pass draws; `states` are their states before it started.
            of_seed: the generator from which it has drawn a seed.
            epoch: that of torch's sampler before it started.
        """
        keys, skipped = iterator._sampler_iter, iterator._num_yielded
        self._newest = self._next_pass = _OrderPass(
            self.index_sampler, self.whole, generators, states, of_seed, epoch, keys, skipped
        )

    def sampler_was_loaded(self) -> None:
        """Makes the next `iter` call `iter` of a sampler whose state was loaded; torchdata does it, too."""
        if has_state(getattr(self, "sampler", None)):
            self._next_pass = None

    @property
    def is_of_rank(self) -> bool:
        """Whether other ranks read other indices."""
        return has_rank(chain_of_torch(self.index_sampler))

    def expect(self, count: int, checksum: int) -> None:
        """Makes the next pass warn if the last one of its first `count` batches has other indices than before."""
        if self._next_pass is not None:
            self._next_pass.check_at, self._next_pass.expected = count, checksum

    def draw_again(self, count: int) -> list[Any]:
        """What the newest pass yields or has yielded for its first `count` batches, or fewer if it ends before.

        Raises:
            ValueError: the order cannot be drawn again; the text names the sampler.
        """
        assert self._newest is not None
        return self._newest.draw_again(count)

    def epoch_of_pass(self) -> int | None:
        """The epoch of torch's sampler for which the newest pass draws; None if the sampler has no epoch."""
        return None if self._newest is None else self._newest.epoch

    def epoch_of_next_pass(self) -> int | None:
        """The epoch of a sampler of gluonloader, which counts its epochs by itself; None for other samplers."""
        sampler = _with_epoch(self.index_sampler)
        return _epoch_of(self.index_sampler) if isinstance(sampler, own.Sampler) else None

    def __iter__(self) -> Iterator[Any]:
        started, self._next_pass = self._next_pass, None
        if started is None:
            epoch = _epoch_of(self.index_sampler)
            return _OrderPass(self.index_sampler, self.whole, [], [], None, epoch, iter(self.index_sampler))
        return started

    def __len__(self) -> int:
        return len(self.index_sampler)

    def __repr__(self) -> str:
        return repr(self.index_sampler)

    def set_epoch_of_pass(self, epoch: int | None) -> None:
        """Sets the epoch of torch's sampler for the pass that is resumed; the program may set it too early or late."""
        _set_epoch(self.index_sampler, epoch)

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: as with torch, the program itself calls `set_epoch` of its sampler."""


class _OrderPass(Iterator[Any]):
    """One pass over torch's sampler. It can return to an earlier batch: it draws the batches before it again.

    It has no reference to its order, which refers to its newest pass: a cycle would keep the dataset, which samplers
    refer to, until the next garbage collection.

    Args:
        index_sampler, whole: those of the order.
        generators, states, of_seed, epoch: as for `TorchOrder.start_pass`.
        keys: the iterator of `index_sampler`.
        skipped: how many keys another library has skipped.

    Attributes:
        check_at: after so many keys, the last one is compared; never if it is 0.
        expected: its checksum when the pass was saved.
    """

    check_at = expected = 0

    def __init__(
        self,
        index_sampler: Any,
        whole: bool,
        generators: Sequence[Any],
        states: Sequence[Any],
        of_seed: Any,
        epoch: int | None,
        keys: Iterator[Any],
        skipped: int = 0,
    ) -> None:
        self._index_sampler, self._whole = index_sampler, whole
        self._generators, self._states, self._of_seed = generators, states, of_seed
        self._keys, self._skipped = keys, skipped
        # `iter` of gluonloader's samplers counts on at once; the epoch of another one may be set until the first batch.
        self._epoch, self._has_epoch = epoch, epoch != _epoch_of(index_sampler)
        self._count, self._last = skipped, None  # how many keys were drawn, and the last ones

    @property
    def epoch(self) -> int | None:
        """The epoch of the sampler at the first batch: at the last batch, some samplers set the next epoch."""
        return self._epoch if self._has_epoch else _epoch_of(self._index_sampler)

    def __next__(self) -> Any:
        if not self._has_epoch:
            self._epoch, self._has_epoch = self.epoch, True
        self._last = keys = self._as_batch(next(self._keys))
        self._count += 1
        if self._count == self.check_at:
            self._check(keys)
        return keys

    def _as_batch(self, keys: Any) -> Any:
        if self._whole:
            return [keys]
        return list(keys) if isinstance(keys, np.ndarray) else keys  # the dataset gets NumPy's integers, as with torch

    def seek(self, offset: int) -> None:
        """Makes `next` return the batch with this number, for example after a signal handler has interrupted it.

        Starts as torch's iterator does: `iter` of the sampler comes before the seed of the workers.
        """
        now = save(self._generators)
        self._keys, self._last = self._start_again(), None
        self._count = self._skipped + offset
        for _ in range(self._count):
            next(self._keys)
        if self._generators:
            restore(self._generators[:1], now[:1])  # torch's global generator, from which other code also draws

    def _check(self, keys: Any) -> None:
        """Warns once if these keys are not those that were expected."""
        self.check_at = 0
        if checksum_of(keys) in (None, self.expected):
            return
        warn(
            f"sampler: this {type(_inner(self._index_sampler)).__name__} yields another order than before the state "
            "was saved, so samples come twice or not at all; let it draw from generator=, or give it set_epoch, or "
            "state_dict and load_state_dict. Ignore this if each rank has its own order, and this state is that of "
            "another rank"
        )

    def _start_again(self) -> Iterator[Any]:
        restore(self._generators, self._states)
        _set_epoch(self._index_sampler, self.epoch)
        keys: Iterator[Any] = iter(self._index_sampler)
        if self._generators:
            draw_seed(self._of_seed)
        return keys

    def draw_again(self, count: int) -> list[Any]:
        """See `TorchOrder`. The pass, the sampler and the generators stay as they are."""
        sampler = self._index_sampler
        name = type(_inner(sampler)).__name__
        for part in chain_of_torch(sampler):
            if has_state(part) or isinstance(part, Iterator):
                raise ValueError(
                    f"sampler: this {name} changes when it is iterated, so its order cannot be drawn again"
                )
        now, of_epoch = save(self._generators), _with_epoch(sampler)
        epoch = None if of_epoch is None else of_epoch.epoch
        with PreservedGenerators():
            try:
                keys = self._start_again()
                drawn = [self._as_batch(key) for key in islice(keys, max(self._skipped + count, self._count))]
            finally:
                restore(self._generators, now)
                if of_epoch is not None:
                    of_epoch.set_epoch(epoch)
        last: list[Any] = [] if self._last is None else [self._last]
        if last and difference(items_of(last), items_of(drawn[self._count - 1 : self._count])):
            raise ValueError(
                f"sampler: this {name} yields another order when it is iterated again, or was changed, so its order "
                "cannot be drawn again; let it draw from its generator=, or use a sampler of torch"
            )
        return drawn[self._skipped : self._skipped + count]


def order_of(loader: Any, whole: bool) -> Any:
    """The batch sampler for a loader. Samplers of gluonloader get gluonloader's, which saves their position."""
    batches = loader.batch_sampler
    if not whole and isinstance(batches, own.BatchSampler):
        return batches
    if not whole and type(batches) is data.BatchSampler and isinstance(batches.sampler, own.Sampler):
        return own.BatchSampler(batches.sampler, batches.batch_size, "discard" if batches.drop_last else "keep")
    return TorchOrder(loader.sampler if batches is None else batches, whole)


def start_pass(order: Any, loader: Any, iterator: Any, draws_seed: bool) -> int:
    """Starts the next pass of a batch sampler from `order_of`; returns the seed of the workers, or 0 if none is drawn.

    torch's constructor of iterators does it, so that what other libraries change in that constructor has an effect.
    """
    generators = generators_of(loader)
    states, of_seed = save(generators), loader.generator if draws_seed else torch.Generator()
    is_torchs, epoch = isinstance(order, TorchOrder), _epoch_of(loader._index_sampler)
    view: Any = _AsTorchReads(loader, loader._index_sampler if is_torchs else (), of_seed)
    torchs._BaseDataLoaderIter.__init__(iterator, view)
    if is_torchs:
        order.start_pass(generators, states, of_seed, epoch, iterator)
    return iterator._base_seed if draws_seed else 0


class _AsTorchReads:
    """A loader as torch's constructor of iterators reads it.

    Args:
        index_sampler: `iter` of it is called.
        generator: the generator from which a seed is drawn.
    """

    _loader: Any = None
    pin_memory = False  # the core loader pins batches, and warns once if it cannot

    def __init__(self, loader: Any, index_sampler: Any, generator: Any) -> None:
        # Not by assignment, which changes the loader.
        vars(self).update(_loader=loader, _index_sampler=index_sampler, generator=generator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._loader, name, value)


def draw_seed(generator: Any) -> int:
    """Draws the seed of the workers, from torch's global generator if `generator` is None."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def generators_of(loader: Any) -> list[Any]:
    """The generators from which a pass draws: torch's global generator, and those of the loader and its samplers."""
    parts = [loader, loader.batch_sampler, loader.sampler, _inner(loader.batch_sampler)]
    found = [torch.default_generator, *(getattr(part, "generator", None) for part in parts)]
    return list({id(generator): generator for generator in found if isinstance(generator, torch.Generator)}.values())


def save(generators: Sequence[Any]) -> list[Any]:
    """Their states, as tensors."""
    return [generator.get_state() for generator in generators]


def restore(generators: Sequence[Any], states: Sequence[Any]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


def as_text(state: Any) -> str:
    """The state of a generator as a text of a few kB."""
    return base64.b64encode(zlib.compress(state.numpy().tobytes())).decode()


def as_states(texts: Any, generators: Sequence[Any]) -> list[Any]:
    """The states of generators from their texts.

    Raises:
        ValueError: they do not fit these generators.
    """
    if not isinstance(texts, list) or len(texts) != len(generators):
        raise ValueError(
            f"state: generators: this loader draws from {len(generators)} generators, but the state does not have as "
            "many; pass generator= and a sampler as to the loader that was saved"
        )
    try:
        states = [np.frombuffer(_bytes_of(text), np.uint8).copy() for text in texts]
        tensors = [torch.from_numpy(state) for state in states]
        for tensor in tensors:
            torch.Generator().set_state(tensor)  # raises an error if it is not a state
    except (ValueError, TypeError, RuntimeError, zlib.error) as error:
        raise ValueError(f"state: generators: they are not states of torch.Generator ({error})") from None
    return tensors


def _bytes_of(text: Any) -> bytes:
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the text is not complete, or too long")
    return data


def _with_epoch(sampler: Any) -> Any:
    """A sampler such as `DistributedSampler`, whose order depends on its epoch, in a sampler; None if there is none."""
    for part in chain_of_torch(sampler):
        if hasattr(part, "set_epoch") and isinstance(getattr(part, "epoch", None), int) and not has_state(part):
            return part
    return None


def _epoch_of(sampler: Any) -> int | None:
    """The epoch of a sampler that has one; otherwise None."""
    found = _with_epoch(sampler)
    return None if found is None else int(found.epoch)


def _set_epoch(sampler: Any, epoch: int | None) -> None:
    """Sets the epoch of a sampler that has one; None does nothing."""
    found = _with_epoch(sampler)
    if found is not None and epoch is not None:
        found.set_epoch(epoch)


def chain_of_torch(sampler: Any) -> Iterator[Any]:
    """A sampler, and the samplers that it wraps."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", getattr(sampler, "batch_sampler", None))


def sampler_of(loader: Any) -> Any:
    """The innermost of the loader's samplers; None if it is not one of torch."""
    return _inner(loader._index_sampler)


def _inner(sampler: Any) -> Any:
    *_, inner = (None, *chain_of_torch(sampler))
    return inner
