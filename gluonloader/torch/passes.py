"""The passes of one `DataLoader` over its sampler: starts them, and saves and loads where they stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import bad_state, warn
from ..loader import DataLoader as CoreDataLoader
from ..randomness import postponed
from ..state import add_checksum, check_same, field, int_field, parse_state
from .core import batch_sampler_of, core_loader, is_iterable
from .order import Order, as_states, as_text, generators_of, restore, save, start_pass


@dataclass(slots=True)
class Pass:
    """One pass over the sampler.

    Attributes:
        core: the loader that makes its batches.
        epoch: its number in `core`.
        generators: the states of torch's generators at its start.
        draws_seed: whether its start drew a seed for the workers.
        exhausted: `next` has raised StopIteration.
    """

    core: CoreDataLoader
    epoch: int
    generators: list[Any]
    draws_seed: bool
    exhausted: bool = False


class Passes:
    """The newest pass of a loader, and the state where the next one starts. The methods get the loader itself."""

    def __init__(self) -> None:
        self._newest: Pass | None = None
        self._loaded: dict[str, Any] | None = None

    def start(self, loader: Any) -> Iterator[Any]:
        """Starts the next pass."""
        generators = generators_of(loader)
        state = self._loaded
        if state is not None:
            restore(generators, as_states(state["generators"], generators))
            if state["position"] is not None:
                return self._resume(loader, state)
        states, last = save(generators), self._newest
        if last is not None and (not _keeps_workers(loader) or last.core.epochs.workers.closed):
            last = None
        order = batch_sampler_of(loader) if last is None else last.core.batch_sampler
        seed = start_pass(order, loader, draws_seed=last is None)
        if last is None:
            self._newest = Pass(core_loader(loader, order, seed, loader.num_workers), 0, states, True)
        else:
            self._newest = Pass(last.core, last.epoch + 1, states, False)
        self._loaded = None
        return PassIterator(loader, self._newest)

    def _resume(self, loader: Any, state: dict[str, Any]) -> Iterator[Any]:
        self.close()
        states, position, order = save(generators_of(loader)), state["position"], batch_sampler_of(loader)
        if isinstance(order, Order):
            order.set_epoch_of_pass(state["sampler_epoch"])
        start_pass(order, loader, state["draws_seed"])
        workers = 0 if state["ended"] and not _keeps_workers(loader) else loader.num_workers
        core = core_loader(loader, order, position["seed"], workers)
        set_generators = postponed(partial(core.load_state_dict, position))
        if state["ended"] and isinstance(order, Order):
            deque(order, maxlen=0)  # draws the rest of the pass, so that the next pass draws other random numbers
        set_generators()  # those that the dataset's state contains were saved after the pass was drawn
        newest = Pass(core, position["epoch"], states, state["draws_seed"])
        self._loaded = None
        if not state["ended"]:
            self._newest = newest
            return PassIterator(loader, newest)
        newest.epoch, newest.exhausted = newest.epoch - 1, True
        self._newest = newest if _keeps_workers(loader) else None
        return iter(())

    def state(self, loader: Any) -> dict[str, Any]:
        """The position of the newest pass, or of the start of the next one."""
        if self._loaded is not None:
            return dict(self._loaded)
        newest, now, keeps = self._newest, save(generators_of(loader)), _keeps_workers(loader)
        if newest is None:
            return _sealed(loader, now, True, False, None)
        position = newest.core.state_dict()
        ended = position["epoch"] != newest.epoch
        if ended and newest.exhausted:
            own = not (keeps or isinstance(newest.core.batch_sampler, Order) or is_iterable(loader))
            return _sealed(loader, now, not keeps, False, position if keeps or own else None)
        order = newest.core.batch_sampler
        epoch = order.epoch_of_pass() if isinstance(order, Order) else None
        return _sealed(loader, newest.generators, newest.draws_seed, ended, position, epoch)

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
        position = field(fields, "position")
        if fields["ended"]:  # then the core loader stands at the start of its next epoch
            int_field(position, "epoch", 1, "position.")
            check_same(position, "batch", 0, "a pass that has ended", "position.")
        if position is not None:  # checked now by a core loader without workers, which is not used any more
            seed = int_field(position, "seed", None, "position.")
            core_loader(loader, batch_sampler_of(loader), seed, 0).epochs.fit(parse_state(position))
        self._loaded = fields

    def close(self) -> None:
        if self._newest is not None:
            self._newest.core.close()


class PassIterator(Iterator[Any]):
    """The iterator over one pass. If a batch raised an error, `next` returns the following batch."""

    def __init__(self, loader: Any, of: Pass) -> None:
        self._pass, self._ends_workers = of, not _keeps_workers(loader)
        length = loader._IterableDataset_len_called
        self._yielded, self._warns_at = 0, None if length is None else length + 1
        self._order = loader._index_sampler
        self._batches = iter(of.core)

    def __iter__(self) -> PassIterator:
        return self

    def __len__(self) -> int:
        return len(self._order)

    def __reduce__(self) -> Any:
        raise NotImplementedError("an iterator over a DataLoader cannot be pickled; save loader.state_dict() instead")

    def __next__(self) -> Any:
        for batch in self._batches:  # unlike `next(self._batches)`: after a call, a signal handler could lose the batch
            self._yielded += 1
            if self._yielded == self._warns_at:
                warn(
                    f"len(dataset) of the iterable dataset is {self._yielded - 1:,}, but more batches were read; if it "
                    "does not divide its samples by torch.utils.data.get_worker_info(), each worker reads all of them"
                )
            return batch
        self._pass.exhausted = True
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Ends the workers of this iterator, unless they stay for the next one."""
        if self._ends_workers:
            self._pass.core.close()

    def __del__(self) -> None:
        if hasattr(self, "_batches"):
            self.close()


def _keeps_workers(loader: Any) -> bool:
    return bool(loader.persistent_workers and loader.num_workers)


def _about(loader: Any) -> dict[str, Any]:
    """What must be the same when a state is loaded."""
    about = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": type(loader.sampler).__name__}
    return {**about, "num_workers": loader.num_workers} if is_iterable(loader) else about


def _sealed(
    loader: Any, generators: Any, draws_seed: bool, ended: bool, position: Any, epoch: int | None = None
) -> dict[str, Any]:
    fields = {"generators": [as_text(state) for state in generators], "draws_seed": draws_seed, "ended": ended}
    return add_checksum({**_about(loader), **fields, "sampler_epoch": epoch, "position": position})
