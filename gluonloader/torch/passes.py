"""The passes of one `DataLoader` over its sampler: starts them, and saves and loads where they stand."""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..checks import check_int
from ..errors import bad_argument, bad_state, hide_own_frames, warn
from ..frameworks import state_from_json
from ..guests import hugging_face
from ..indices import checksum_of
from ..loader import DataLoader as CoreDataLoader
from ..messages import message
from ..position.indices import seed_of_rank
from ..randomness import postponed
from ..sampler import users
from ..state import add_checksum, check_same, field, has_state, int_field, parse_state, seed_field
from ..statistics import program
from ..statistics.stats import LoaderStats
from ..statistics.trace import Trace
from .core import batch_sampler_of, core_loader, is_iterable
from .order import TorchOrder, as_states, as_text, generators_of, restore, sampler_of, save, start_pass
from .utils_data import torchs
from .words import use_torchs_words


@dataclass(slots=True, kw_only=True)
class TorchPass:
    """One pass over the sampler.

    Attributes:
        core: the loader that makes its batches.
        epoch: its number in `core`.
        generators: the states of torch's generators at its start.
        draws_seed: whether its start drew a seed for the workers.
        skipped: how many batches another library has skipped at its start.
        exhausted: `next` has raised StopIteration.
        batches: what yields them.
    """

    core: CoreDataLoader
    epoch: int
    generators: list[Any]
    draws_seed: bool
    skipped: int = 0
    exhausted: bool = False
    batches: Callable[[], Any] = lambda: None  # a weak reference, since the loader outlives its iterators

    def start(self) -> Iterator[Any]:
        batches = iter(self.core)
        self.batches = weakref.ref(batches)
        return batches

    @property
    def last(self) -> Any:
        """Which batch was delivered last; None if that is not known any more."""
        batches = self.batches()
        return None if batches is None else batches.last


@message(frozen=True, slots=True, kw_only=True)
class _PassState:
    """Where a pass stands, or the next one starts.

    Attributes:
        generators: the states of torch's generators at the start of the pass.
        draws_seed: whether its start draws a seed for the workers.
        ended: all of its batches were delivered, but `next` has not raised StopIteration.
        sampler_epoch: the epoch of the pass, if torch's sampler has `set_epoch`; of the next pass, if it counts itself.
        position: that of the core loader; None if the pass has not started.
        last_keys: a checksum of the indices of the batch before the position; None if it is not known.
        stateful: between two passes without a position, the states of what `_stateful` returns, as JSON.
    """

    generators: list[Any]
    draws_seed: bool
    ended: bool = False
    sampler_epoch: int | None = None
    position: dict[str, Any] | None = None
    last_keys: int | None = None
    stateful: list[Any] | None = None


class Passes:
    """The newest pass of a loader, and the state where the next one starts. The methods get the loader itself.

    It is all that our loader adds to torch's, in one object, so that a subclass can use any names.

    Args:
        more: the arguments of the core loader that torch's loader does not have.
    """

    def __init__(self, **more: Any) -> None:
        self.more = more
        self.newest: TorchPass | None = None
        self._loaded: dict[str, Any] | None = None
        self._trace: Trace | None = None  # records the next pass
        self._number = next(program.numbers)
        self._by_others = False  # the newest iterator of the loader is not ours

    def iterate(self, loader: Any) -> Any:
        """Does what `iter` of torch's loader does, except that iterators with persistent workers are independent."""
        keeps, before = _keeps_workers(loader), self.newest
        iterator = loader._iterator if keeps else None
        if iterator is None or isinstance(iterator, PassIterator):
            if keeps:
                iterator = loader._iterator = None  # the last iterator ends now, unless the program still reads it
            iterator = loader._get_iterator()
        else:  # of a subclass
            iterator._reset(loader)
        if keeps:
            loader._iterator = iterator
        self._by_others = self.newest is before
        return iterator

    def start(self, loader: Any, iterator: Any) -> tuple[TorchPass, Iterator[Any]]:
        """Starts the next pass, for `iterator`; returns it with its batches."""
        generators = generators_of(loader)
        state = self._loaded
        if state is not None:
            restore(generators, as_states(state["generators"], generators))
            if state["position"] is not None:
                return self._resume(loader, iterator, state)
            for part, saved in zip(_stateful(loader), state["stateful"] or [], strict=False):
                users.restore(part, saved)
        states, last = save(generators), self.newest
        if last is not None and (not _keeps_workers(loader) or last.core.epochs.workers.closed):
            last = None
        order = batch_sampler_of(loader) if last is None else last.core.batch_sampler
        if state is not None and isinstance(order, TorchOrder):
            order.set_epoch_of_pass(state["sampler_epoch"])
        seed = start_pass(order, loader, iterator, draws_seed=last is None)
        skipped = iterator._num_yielded
        if last is None:
            core = core_loader(loader, order, seed, loader.num_workers, self.more)
            self.newest = TorchPass(core=core, epoch=0, generators=states, draws_seed=True, skipped=skipped)
        else:
            self.newest = TorchPass(
                core=last.core, epoch=last.epoch + 1, generators=states, draws_seed=False, skipped=skipped
            )
        self._loaded = None
        self._started_by(self.newest.core)
        return self.newest, self.newest.start()

    def _resume(self, loader: Any, iterator: Any, state: dict[str, Any]) -> tuple[TorchPass, Iterator[Any]]:
        self.close()
        states, position, order = save(generators_of(loader)), state["position"], batch_sampler_of(loader)
        if isinstance(order, TorchOrder):
            order.set_epoch_of_pass(state["sampler_epoch"])
        seed = start_pass(order, loader, iterator, state["draws_seed"])
        if state["draws_seed"] and not state["ended"] and not position["batch"]:
            # Between two passes, the position is of the last one, but the next one has its own workers.
            position = add_checksum({**position, "seed": seed, "epoch": 0})
        workers = 0 if state["ended"] and not _keeps_workers(loader) else loader.num_workers
        core = core_loader(loader, order, position["seed"], workers, self.more)
        set_generators = postponed(partial(core.load_state_dict, position))
        if isinstance(order, TorchOrder):
            order.sampler_was_loaded()
            if state["last_keys"] is not None:
                order.expect(position["offset"], state["last_keys"])
            if state["ended"]:
                drawn = deque(order, maxlen=1)  # draws the rest, so that the next pass draws other random numbers
                if drawn and has_state(sampler_of(loader)):  # it was at the start of the next pass, and returns there
                    users.restore(sampler_of(loader), position["snapshot"])
        set_generators()  # those that the dataset's state contains were saved after the pass was drawn
        newest = TorchPass(core=core, epoch=position["epoch"], generators=states, draws_seed=state["draws_seed"])
        self._loaded, self.newest = None, newest
        if not state["ended"]:
            self._started_by(core)
            return newest, newest.start()
        newest.epoch -= 1
        return newest, iter(())

    def _started_by(self, core: CoreDataLoader) -> None:
        """Counts and records what a core loader does, from its next pass on, as what this loader does."""
        core.epochs.workers.number = self._number
        if self._trace is not None:
            core.epochs.workers.record(self._trace)
            self._trace = None

    def state(self, loader: Any) -> dict[str, Any]:
        """The position of the newest pass, or of the start of the next one."""
        if self._loaded is not None:
            return dict(self._loaded)
        newest, now, keeps = self.newest, save(generators_of(loader)), _keeps_workers(loader)
        self._check_known(loader)
        if newest is None:
            return _sealed(loader, _PassState(generators=now, draws_seed=True))
        position, order = newest.core.state_dict(), newest.core.batch_sampler
        is_torchs = isinstance(order, TorchOrder)
        ended = position["epoch"] != newest.epoch
        if ended and newest.exhausted:
            own = not (keeps or is_torchs or is_iterable(loader))
            known = position if keeps or own else None
            parts = [] if known is not None else _stateful(loader)
            state = _PassState(
                generators=now,
                draws_seed=not keeps,
                sampler_epoch=order.epoch_of_next_pass() if is_torchs else None,
                position=known,
                stateful=list(map(users.snapshot, parts)) or None,
            )
            return _sealed(loader, state)
        state = _PassState(
            generators=newest.generators,
            draws_seed=newest.draws_seed,
            ended=ended,
            sampler_epoch=order.epoch_of_pass() if is_torchs else None,
            position=position,
            last_keys=_last_keys(newest, order, position) if is_torchs else None,
        )
        return _sealed(loader, state)

    def _check_known(self, loader: Any) -> None:
        """Raises a RuntimeError if another library decides which batch comes next."""
        name = type(loader).__name__
        if self._by_others:
            raise RuntimeError(
                f"{name}.state_dict: the position is unknown, because {name}._get_iterator has returned an iterator of "
                "another library; define state_dict in that class, too"
            )
        if self.newest is not None and self.newest.skipped:
            raise RuntimeError(
                f"{name}.state_dict: another library has skipped the first {self.newest.skipped} batches of this pass; "
                "save the checkpoint with that library"
            )

    def load(self, loader: Any, state: Any) -> None:
        """Makes the next pass start at the position `state`; raises ValueError if the position does not fit."""
        fields = parse_state(state)
        for name, value in _about(loader).items():
            check_same(fields, name, value, "this DataLoader")
        as_states(field(fields, "generators"), generators_of(loader))
        for name in ("draws_seed", "ended"):
            if not isinstance(field(fields, name), bool):
                raise bad_state(name, fields[name], "must be true or false")
        if field(fields, "sampler_epoch") is not None:
            int_field(fields, "sampler_epoch", 0)
        if field(fields, "last_keys") is not None:
            int_field(fields, "last_keys", 0)
        if (states := field(fields, "stateful")) is not None:
            if not isinstance(states, list) or len(states) != len(_stateful(loader)):
                raise bad_state("stateful", states, "must be the states of the sampler and of the dataset")
            for saved in states:
                state_from_json(saved)
        position = field(fields, "position")
        if fields["ended"]:  # then the core loader stands at the start of its next epoch
            int_field(position, "epoch", 1, "position.")
            check_same(position, "batch", 0, "a pass that has ended", "position.")
        if position is not None:  # checked now by a core loader without workers, which is not used any more
            seed = seed_field(position, "position.")
            core_loader(loader, batch_sampler_of(loader), seed, 0, self.more).epochs.fit(parse_state(position))
        self._loaded = fields

    def stats(self) -> LoaderStats:
        return self._started("there are no statistics yet").core.stats()

    def trace(self, path: str | os.PathLike[str], batches: int) -> Trace:
        """Records the newest pass, or the next one if no pass is open."""
        if self.newest is not None and not self.newest.core.epochs.workers.closed:
            return self.newest.core.trace(path, batches)
        self._trace = Trace(path, check_int("batches", batches, 1))
        return self._trace

    def indices(self, loader: Any, batch: int) -> Any:
        """What torch's sampler yields for a batch of the newest pass."""
        newest, keys = self._draw_again(loader, batch)
        order = newest.core.batch_sampler
        return keys[0] if isinstance(order, TorchOrder) and order.whole else keys

    def _draw_again(self, loader: Any, batch: int) -> tuple[TorchPass, Any]:
        """The newest pass, and what its core loader draws for a batch."""
        newest, batch = self._started("there is no batch yet"), check_int("batch", batch, 0)
        if is_iterable(loader):
            raise TypeError("each worker reads its own copy of an iterable dataset, without indices")
        order = newest.core.batch_sampler
        if not isinstance(order, TorchOrder):
            return newest, newest.core.indices(newest.epoch, batch)
        drawn = order.draw_again(batch + 1)
        if len(drawn) <= batch:
            raise bad_argument("batch", batch, f"this pass has {len(drawn)} batches, numbered from 0")
        return newest, drawn[batch]

    def replay(self, loader: Any, batch: int) -> Any:
        """Makes a batch of the newest pass again, in the calling thread, with a core loader without workers."""
        newest, keys = self._draw_again(loader, batch)
        seed = seed_of_rank(newest.core.epochs.workers.job.seed, newest.core.batch_sampler)
        core = core_loader(loader, [keys] * (batch + 1), seed, 0, self.more)
        return core.replay(newest.epoch, batch)

    def _started(self, otherwise: str) -> TorchPass:
        if self.newest is None:
            raise RuntimeError(f"{otherwise}; iterate over the loader first")
        return self.newest

    def close(self) -> None:
        if self.newest is not None:
            self.newest.core.close()

    def __reduce__(self) -> Any:
        return _copied, (self.more, self._loaded)  # a copy has no workers yet


def _last_keys(newest: TorchPass, order: TorchOrder, position: dict[str, Any]) -> int | None:
    """A checksum of the indices of the batch before a position; None if another batch was delivered last."""
    if order.is_of_rank:
        return None  # another rank may load the state
    last = newest.last
    # The position in an iterable dataset has no offset.
    is_before = last is not None and (last.epoch, last.number + 1) == (position["epoch"], position.get("offset"))
    return checksum_of(last.indices) if is_before else None


def _copied(more: dict[str, Any], loaded: dict[str, Any] | None) -> Passes:
    """The passes of a copy of a loader; it starts where a loaded state says, as the loader itself."""
    passes = Passes(**more)
    passes._loaded = loaded
    return passes


class PassIterator(torchs._BaseDataLoaderIter):
    """The iterator over one pass. If a batch raised an error, `next` returns the following batch.

    It has the attributes of torch's iterators that other libraries use, and torch's classes, but loads no batches with
    torch.
    """

    def __init__(self, loader: Any) -> None:
        self._passes: Passes = loader._gluonloader
        self._reset(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Starts the next pass in this iterator. torch does it if workers are persistent, and so may subclasses."""
        self._pass, self._batches = self._passes.start(loader, self)
        self._ends_workers = not _keeps_workers(loader)
        length = self._IterableDataset_len_called
        self._warns_at = None if length is None else length + 1
        self._index_sampler = loader._index_sampler

    def __iter__(self) -> PassIterator:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __reduce__(self) -> Any:
        raise NotImplementedError("an iterator over a DataLoader cannot be pickled; save loader.state_dict() instead")

    def __next__(self) -> Any:
        try:
            for batch in self._batches:  # unlike `next()`: after a call, a signal handler could lose the batch
                self._num_yielded += 1
                if self._num_yielded == self._warns_at:
                    warn(
                        f"len(dataset) of the iterable dataset is {self._num_yielded - 1:,}, but more batches were "
                        "read; if it does not divide its samples by torch.utils.data.get_worker_info(), each worker "
                        "reads all of them"
                    )
                return batch
        except BaseException as error:  # also Ctrl-C
            use_torchs_words(error)
            error = hide_own_frames(error)
            raise error  # GLUONLOADER_FULL_TRACEBACK=1 shows all frames
        self._pass.exhausted = True
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Ends the workers of this iterator, unless they stay for the next one."""
        if self._ends_workers:
            self._pass.core.close()

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if not ends() and hasattr(self, "_ends_workers"):
            self.close()


class SerialPassIterator(PassIterator, torchs._SingleProcessDataLoaderIter):
    """The iterator over a pass without workers."""


class WorkersPassIterator(PassIterator, torchs._MultiProcessingDataLoaderIter):
    """The iterator over a pass with workers."""

    @property
    def _workers(self) -> list[Any]:  # type: ignore[override]
        """The processes that run now; a process that has died is replaced by another one."""
        return list(self._pass.core.epochs.workers.processes)

    def _shutdown_workers(self) -> None:
        """Ends the workers, also those that would stay for the next iterator."""
        self._pass.core.close()


def _keeps_workers(loader: Any) -> bool:
    return bool(loader.persistent_workers and loader.num_workers)


def _stateful(loader: Any) -> list[Any]:
    """The sampler and the dataset, if they have a state and this process uses them."""
    used = [] if is_iterable(loader) else [sampler_of(loader)]
    if not (loader.num_workers or hugging_face.is_stream(loader.dataset)):  # whose state after its end has no samples
        used.append(loader.dataset)
    return list(filter(has_state, used))


def _about(loader: Any) -> dict[str, Any]:
    """What must be the same when a state is loaded."""
    about = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": type(loader.sampler).__name__}
    return {**about, "num_workers": loader.num_workers} if is_iterable(loader) else about


def _sealed(loader: Any, state: _PassState) -> dict[str, Any]:
    fields = {name: getattr(state, name) for name in _PassState.__slots__}
    return add_checksum({**_about(loader), **fields, "generators": [as_text(saved) for saved in state.generators]})
