"""The source of tasks for a map-style dataset: the batches of indices of a batch sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..lengths import length_if_known
from ..position import indices as position
from ..position.progress import Start
from ..sampler.base import changes_of
from ..sampler.users import UsersEpochs, epochs_of, set_epoch, snapshot, stateful_part
from ..state import State, add_checksum
from .among_ranks import Comparison
from .plan import IndexPlan, Plan, Started

T = TypeVar("T")


class History:
    """How the epochs of a map-style dataset have started since the loader was made or a position was loaded.

    NOTE [replay] in replay.py says what it is for.

    Attributes:
        started: by epoch; for a loaded position, also before its epoch starts.
        first: the earliest position at which an epoch has started: its epoch, and how it started; None if no epoch has
            started. The state of a stateful sampler stays known only for this start and for the newest start.
    """

    def __init__(self) -> None:
        self.started: dict[int, Started] = {}
        self.first: tuple[int, Started] | None = None
        self._newest: Started | None = None
        self._loaded: Started | None = None  # how the epoch of a loaded position starts, until the program takes it

    def take_loaded(self) -> None:
        """The program has taken an epoch, so it gets the batches from the loaded position on."""
        self._loaded = None

    def leave_loaded(self) -> None:
        """The loaded position was left; if its epoch was not taken, it will start at its first batch."""
        if self._loaded is not None:
            self._loaded.irregular = self._loaded.drawn = None

    def add(self, epoch: int, started: Started) -> None:
        known = self.started.get(epoch)
        if started.carried is None and known is not None:
            started.carried = known.carried
        if known is not None and known.irregular is not None and started.number >= known.irregular.number:
            started.irregular = known.irregular
        if self._newest is not None and (self.first is None or self._newest is not self.first[1]):
            self._newest.snapshot = None  # it may be large
        if self.first is None or (epoch, started.number) <= (self.first[0], self.first[1].number):
            self.first = epoch, started
        if known is not None and known is self._loaded:  # with auto_reload, before the program takes it
            self._loaded = started
        self.started[epoch] = self._newest = started

    @classmethod
    def of_state(cls, batch_sampler: Any, fields: State, start: Start, new_batch_size: bool) -> History:
        """The history of a loader that has loaded a state, which may have been saved with another batch size."""
        history = cls()
        has_new = start.number > 0 and (new_batch_size or not position.is_regular(batch_sampler, fields))
        carried = None if has_new else fields["carried"]
        changes, users_epochs = changes_of(batch_sampler), epochs_of(batch_sampler)
        order_epoch = fields["sampler"].get("epoch", fields["epoch"])
        started = Started(start, order_epoch, carried, changes, users_epochs, fields.get("snapshot"))
        started.irregular = start if has_new else None
        history.add(fields["epoch"], started)
        history._loaded = started
        return history

    def carried_before(self, epoch: int) -> tuple[int, list[Any]]:
        """The last epoch up to `epoch` whose carried indices are known, and these indices.

        Raises:
            ValueError: an epoch between them was resumed with another batch size, so it carries over other indices.
        """
        known = [number for number, started in self.started.items() if number <= epoch and started.carried is not None]
        for number, started in self.started.items():
            if started.irregular is not None and max(known, default=-1) < number < epoch:
                raise ValueError(
                    f"epoch={epoch}: epoch {number} was resumed with another batch_size, so the samples that it "
                    f"carries over are known only when epoch {number + 1} has started"
                )
        if not known:
            return 0, []
        return max(known), list(self.started[max(known)].carried or [])


class IndexSource:
    """Batches of indices from a batch sampler.

    Args:
        comparison: with the other ranks, made when the first epoch starts; None for no comparison.

    Attributes:
        loader: the kind of loader that has it, for errors.
        history: how its epochs have started.
        fixed_length: the length of the dataset for which the loader has made the sampler, which stays the length of
            each epoch; None if the user passed a sampler.
        users_epochs: the epochs of the user's samplers.
    """

    loader = "a DataLoader"

    def __init__(
        self,
        batch_sampler: Any,
        history: History | None = None,
        fixed_length: int | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        self.sampler, self.fixed_length, self._comparison = batch_sampler, fixed_length, comparison
        self.history = history or History()
        self.users_epochs = UsersEpochs(batch_sampler)
        self._start = Start()

    def length(self, dataset: Any) -> int | None:
        """The length of the dataset that a position contains; None if it is unknown."""
        return length_if_known(dataset) if self.fixed_length is None else self.fixed_length

    def batches(self, dataset: Any, copied_length: int | None) -> int:
        """The number of batches of the next epoch; for `copied_length` see `Workers`."""
        return len(self.sampler)

    def plan(self, epoch: int, seed: int, loaded: State | None) -> Plan:
        """The plan of an epoch; `loaded`: the fields of the loaded position where it starts, or None."""
        self.users_epochs.move(epoch)
        start = self._start if loaded else Start()
        if self._comparison is not None:
            self._comparison.check(epoch, start)
            self._comparison = None
        plan = IndexPlan(self.sampler, epoch, seed, start)
        self.history.add(epoch, plan.started)
        return plan

    def known_history(self, number: int) -> History:
        """The history; if nothing was drawn yet, the state of a stateful sampler is added first.

        Args:
            number: of the next epoch.
        """
        stateful = stateful_part(self.sampler)
        if stateful is not None:
            if self.history.first is None:
                carried = list(getattr(self.sampler, "carried", ()))
                known = carried, changes_of(self.sampler), epochs_of(self.sampler)
                self.history.add(number, Started(Start(), number, *known))
            assert self.history.first is not None
            _, first = self.history.first
            if first.snapshot is None:
                first.snapshot = snapshot(stateful)
        return self.history

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]:
        """The position before the first batch of an epoch."""
        return position.fresh_state(self.sampler)

    def fit(self, fields: State, new_batch_size: bool) -> State:
        """Returns a position for our batch size and our ranks; the same object if nothing has to change.

        Raises:
            ValueError: the position does not fit.
        """
        fitting = position.fit(self.sampler, fields, new_batch_size)
        return fields if fitting == fields else add_checksum(fitting)

    def load(self, fields: State, load_rest: Callable[[], T], new_batch_size: bool) -> T:
        """Stores a position, which `fit` has returned, for the next plan; returns what `load_rest` has returned.

        `load_rest` is called last. If it or this raises, nothing has changed.

        Args:
            new_batch_size: whether it was saved with another batch size or another number of ranks.
        """
        restore = position.keep(self.sampler)
        try:
            start = position.load(self.sampler, fields)
            result = load_rest()
            if self.users_epochs.sets:
                self.set_epoch(fields["epoch"], loaded=True)
        except BaseException:
            restore()
            raise
        self._start, self.history = start, History.of_state(self.sampler, fields, start, new_batch_size)
        return result

    def set_epoch(self, number: int, loaded: bool = False) -> bool:
        """Sets the samplers for an epoch; see `set_epoch` in sampler/users.py."""
        if not loaded:
            self.history.leave_loaded()
        was_set = set_epoch(self.sampler, number, loaded=loaded)
        self.users_epochs.note(number)
        return was_set

    @property
    def draws_late(self) -> bool:
        """Whether a pass that has drawn nothing yet may get the epoch of a pass that starts later."""
        return self.users_epochs.any_late

    def leave_epochs(self) -> None:
        """Leaves the epochs of the user's samplers to the user, as the loaders of torch and Gluon do."""
        self.users_epochs.sets = False

    def move_on(self, number: int) -> None:
        """Sets the user's samplers for this epoch, which starts next."""
        self.users_epochs.move(number)

    def finish(self, plan: Plan) -> None:
        """Moves the samples that a finished epoch carries over to the next epoch. A second call changes nothing."""
        if isinstance(plan, IndexPlan) and plan.finished and not plan.outdated:
            plan.carry_over()
