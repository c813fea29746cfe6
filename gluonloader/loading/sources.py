"""Where the tasks of a loader's epochs come from: a batch sampler, or the shards of an iterable dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..sampler import changes_of
from .history import History
from .lengths import lengths_of
from .plan import IndexPlan, Leftover, Plan, ShardPlan, Shards, Start, Started, sampler_state, shard_state
from .plan.quota import Quota, check_stop
from .plan.sampler_state import fresh_state, snapshot, stateful_part

Fields = Mapping[str, Any]


class IndexSource:
    """Batches of indices from a batch sampler.

    Attributes:
        history: how its epochs have started.
    """

    def __init__(self, batch_sampler: Any, history: History | None = None) -> None:
        self.sampler = batch_sampler
        self.history = history or History()
        self._start = Start()

    def batches(self, dataset: Any) -> int:
        return len(self.sampler)

    def plan(self, epoch: int, seed: int, loaded: Fields | None) -> Plan:
        """The plan of an epoch; `loaded`: the fields of the loaded position where it starts, or None."""
        plan = IndexPlan(self.sampler, epoch, seed, self._start if loaded else Start())
        self.history.add(epoch, plan.started)
        return plan

    def known_history(self, number: int) -> History:
        """The history; if no epoch has started, the state of a stateful sampler is added first.

        Args:
            number: of the next epoch.
        """
        stateful = stateful_part(self.sampler)
        if self.history.first is None and stateful is not None:
            carried = list(getattr(self.sampler, "carried", ()))
            self.history.add(number, Started(0, carried, changes_of(self.sampler), snapshot(stateful)))
        return self.history

    def loaded_plan(self, batch_sampler: Any, epoch: int, seed: int) -> IndexPlan:
        """The plan that starts at the loaded position; `batch_sampler` is a copy, which the plan draws from."""
        return IndexPlan(batch_sampler, epoch, seed, self._start)

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]:
        """The position before the first batch of an epoch."""
        return fresh_state(self.sampler)

    def check(self, fields: Fields) -> None:
        """Raises ValueError if a position does not fit."""
        sampler_state.check(self.sampler, fields)

    def load(self, fields: Fields, load_rest: Callable[[], None]) -> None:
        """Stores a position, which `check` has accepted, for the next plan.

        `load_rest` is called last. If it or this raises, nothing has changed.
        """
        restore = sampler_state.keep(self.sampler)
        try:
            start = sampler_state.load(self.sampler, fields)
            load_rest()
        except BaseException:
            restore()
            raise
        self._start, self.history = start, History.of_state(self.sampler, fields, start)

    def finish(self, plan: Plan) -> None:
        """Moves the samples that a finished epoch carries over to the next epoch. A second call changes nothing."""
        if isinstance(plan, IndexPlan) and plan.finished and not plan.outdated:
            plan.carry_over()


class ShardSource:
    """Chunks of the shards of an iterable dataset; for the methods see `IndexSource`."""

    sampler = None

    def __init__(self, shards: Shards, quota: Quota | None = None) -> None:
        self.shards, self._quota = shards, quota
        self._carried: list[Leftover] = []
        self._iteration = 0

    def batches(self, dataset: Any) -> int:
        if self._quota is not None:
            return self._quota.batches(self.shards)
        shards = self.shards
        own = len(dataset) if shards.ranks == 1 else sum(lengths_of(dataset, shards, shards.owned).values())
        return shards.batches(own + sum(leftover.stop - leftover.start for leftover in self._carried))

    def plan(self, epoch: int, seed: int, loaded: Fields | None) -> Plan:
        self._iteration += 1
        return ShardPlan(self.shards, epoch, seed, self._iteration, self._carried, loaded, self._quota)

    def other_plan(self, epoch: int, seed: int, carried: list[Leftover]) -> ShardPlan:
        """A plan that is no epoch of the loader, for workers that the loader does not use."""
        return ShardPlan(self.shards, epoch, seed, -1, carried, None, self._quota)

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]:
        return self.other_plan(epoch, seed, self._carried).state()

    def check(self, fields: Fields) -> None:
        shard_state.check(self.shards, fields)
        if "stop" in fields:
            check_stop(self._quota, self.shards, fields)

    def load(self, fields: Fields, load_rest: Callable[[], None]) -> None:
        load_rest()
        self._carried = shard_state.carried_of(self.shards, fields)

    def finish(self, plan: Plan) -> None:
        if isinstance(plan, ShardPlan) and plan.finished and not plan.outdated:
            self._carried = plan.carried_over


Source = IndexSource | ShardSource
