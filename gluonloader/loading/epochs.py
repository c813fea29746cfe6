"""The epochs of one loader: starts the next epoch, and saves and loads the positions of epochs."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from ..declared import caches_of, identities, parts_of
from ..describe import counted, describe
from ..errors import bad_state, warn
from ..frameworks import state_from_json, state_to_json
from ..interrupts import from_signal_handler
from ..locks import Lock
from ..messages import message
from ..randomness import postponed
from ..sampler.base import copy_of, is_computed, keep_epochs
from ..sampler.users import leave_epoch
from ..state import State, add_checksum, check_same, field, has_state, hash_of, int_field, parse_state, seed_field
from .epoch import Delivery, Epoch
from .index_source import IndexSource
from .lengths import LengthCheck
from .plan import IndexPlan, Plan
from .workers import Workers

if TYPE_CHECKING:
    from .ahead import Ahead, Standby
    from .shard_source import ShardSource

_OTHER_SUBSET: Final = (
    "dataset: this Subset has other indices than the one that was saved, so samples come twice or not at all, and may "
    "be those that you test with; pass the dataset that was saved, e.g. random_split(..., seed=0). Ignore this if each "
    "rank has its own Subset, and this state is that of another rank"
)
_MOST_PARTS: Final = 16  # of a dataset, that a state describes one by one


def _nothing() -> None:
    pass


@message(frozen=True, slots=True)
class Next:
    """The epoch that starts next. It is replaced as a whole, so that an interrupt never leaves a part of a change.

    Attributes:
        number: its number.
        after: the plan of the epoch that was started last; None if none was, or if a position was loaded since then.
        ahead: the epoch before it, if that was started ahead, so that the user gets it first.
        loaded: the state that was loaded, where it starts; None for the start of the epoch.
        loaded_number: the number in the state that was loaded last, until the user gets that epoch.
        restore: takes back what an interrupted start did to the sampler.
        set_generators: what loading the dataset does to the global generators. It comes after the sampler's pass has
            started, as in torchdata: the state was saved after the sampler had drawn from these generators.
    """

    number: int = 0
    after: Plan | None = None
    ahead: Epoch | None = None
    loaded: State | None = None
    loaded_number: int | None = None
    restore: Callable[[], None] | None = None
    set_generators: Callable[[], None] = _nothing


class Epochs:
    """Starts the epochs of a loader, and saves and loads positions. The loader and its iterators share it.

    Args:
        seed_given: whether the user passed a seed; then a position with another seed does not fit.
        auto_reload: whether an epoch starts as soon as the last batch of the previous epoch was delivered; may be set.

    Attributes:
        delivery: how batches are delivered.
        seed_given: see above.
        any_started: whether an epoch has started or a position was loaded. If not, no batch was made with seeds that
            were drawn at random.
        lock: held while an epoch starts or a position is saved or loaded.
    """

    def __init__(
        self,
        source: IndexSource | ShardSource,
        workers: Workers,
        delivery: Delivery,
        seed_given: bool,
        auto_reload: bool,
    ) -> None:
        self.workers, self.auto_reload = workers, auto_reload
        self.source, self.delivery, self.seed_given = source, delivery, seed_given
        self.any_started = False
        self._next = Next()
        self.lock = Lock()
        self._open: list[weakref.ref[Epoch]] = []  # epochs that may still be read
        self._lengths = LengthCheck()
        self._fetched_at_start: list[int] | None = None  # `_fetched` when an epoch started with its first batch
        self._had_all: list[int] | None = None  # `_fetched` when an epoch has ended that has fetched nothing

    def __reduce__(self) -> Any:
        return Epochs, (self.source, self.workers, self.delivery, self.seed_given, self.auto_reload), self.state()

    def __copy__(self) -> Epochs:
        # Samplers change from epoch to epoch, so the copy has its own samplers. Both loaders read the same dataset.
        dataset, workers = self.workers.job.dataset, copy.copy(self.workers)
        source = copy.deepcopy(self.source, {id(dataset): dataset})
        new = Epochs(source, workers, self.delivery, self.seed_given, self.auto_reload)
        new.load(self.state())
        return new

    def __setstate__(self, state: Any) -> None:
        self.load(state)

    def __len__(self) -> int:
        self._finish_current()
        try:
            return self.source.batches(self.workers.job.dataset, self.workers.copied_length)
        except TypeError as error:
            if "has no len()" not in str(error):  # a sampler of the library says what to do
                raise
            cure = "define __len__ in the dataset or sampler if the length is known, or count the batches in the loop"
            raise TypeError(f"{error}; {cure}") from None

    def start_ahead(self) -> None:
        """With auto_reload: starts the next epoch before the user asks for it."""
        if self.auto_reload and not self.workers.closed and self._next.ahead is None:
            self.start_now()

    def start_now(self) -> None:
        """Starts the next epoch, also without `auto_reload`."""
        self.drop_ahead()
        epoch, known = self._start(), self._next
        self._next = Next(epoch.plan.epoch + 1, known.after, epoch, loaded_number=known.loaded_number)
        epoch.draw_ahead()

    def drop_ahead(self) -> None:
        """Drops the epoch that was started ahead: the user gets the epoch after it."""
        self._next = replace(self._next, ahead=None)

    def rewind_ahead(self) -> None:
        """Draws the batches of the epoch that was started ahead again, after a change to the sampler."""
        with self.lock:
            if self._next.ahead is not None and not self.workers.closed:
                self._next.ahead.rewind()

    def next(self) -> Epoch:
        """The next epoch.

        Raises:
            LoaderClosed: the loader is closed.
        """
        with self.lock:
            self._finish_current()
            ahead = self._next.ahead
            if ahead is not None and not self.workers.in_this_process:  # the parent process has started it
                self.load(self.state_of(ahead.plan))
                ahead = None
            epoch = self._start() if ahead is None else ahead
            self.any_started = True
            if isinstance(self.source, IndexSource):
                self.source.history.take_loaded()
            self._next = Next(epoch.plan.epoch + 1, epoch.plan)  # last, so that an interrupted start is made again
            return epoch

    def _start(self) -> Epoch:
        """Starts an epoch; the caller then replaces `_next`. If an interrupt comes first, this start is made again."""
        open_epochs = [epoch for reference in self._open if (epoch := reference()) is not None and not epoch.ended]
        executor = self.workers.next_executor(self._next.number)
        self.workers.note_epoch()
        self._lengths.at_start(self.workers.job.dataset, self.source.fixed_length, self.workers.copied_length)
        plan = self._next_plan()
        look_ahead = self._look_ahead if self._has_caches else None
        self._fetched_at_start = self._fetched() if self._has_caches and not plan.position else None
        epoch = Epoch(executor, plan, self.delivery, self.workers.tally, look_ahead)
        if self.source.draws_late:
            epoch.draw_ahead()
        self._open = [weakref.ref(other) for other in (*open_epochs, epoch)]
        self._next.set_generators()
        return epoch

    @cached_property
    def _has_caches(self) -> bool:
        """Whether samples are read through caches, and it is known which ones come next."""
        is_known = isinstance(self.source, IndexSource) and is_computed(self.source.sampler)
        return is_known and bool(caches_of(self.workers.job.dataset))

    def _fetched(self) -> list[int]:
        """When each cache has fetched something last."""
        return [cache.fetched_ns() for cache in caches_of(self.workers.job.dataset)]

    def _has_fetched(self) -> bool:
        """Whether a cache has fetched something since an epoch found all its blocks there."""
        return self._fetched() != self._had_all

    def _look_ahead(self, plan: Plan) -> Ahead | Standby | None:
        """What tells caches of the batches that come next in this epoch; None if that is not known."""
        from .ahead import Ahead, Standby, tasks_ahead

        if not self._has_fetched():
            return Standby(self._has_fetched, partial(self._look_ahead, plan))
        try:
            state, job = self.state_of(plan), self.workers.job
        except TypeError:  # it carries over keys that no state can contain, such as rows of documents
            return None
        tasks = (task for (task,) in tasks_ahead([copy_of(self.source.sampler)], state, job.seed) if task is not None)
        return Ahead(tasks, job.dataset, 1 + self.workers.prefetch, self)

    def _next_plan(self) -> Plan:
        if self._next.restore is not None:
            self._next.restore()
        self._next = replace(self._next, restore=keep_epochs(self.source.sampler))
        plan = self.source.plan(self._next.number, self.workers.job.seed, self._next.loaded)
        plan.errors.limit = self.delivery.max_errors
        return plan

    @property
    def number(self) -> int:
        """The number of the epoch for which the samplers are set now; hold the lock."""
        if self._next.restore is not None:  # a start was interrupted
            self._next.restore()
        return self._next.number

    def finish(self, epoch: Epoch) -> None:
        """Called when the last batch of an epoch was delivered, or the epoch was closed."""
        self.source.finish(epoch.plan)
        self._lengths.at_end(self.workers.job.dataset, epoch.plan.samples_read)
        if epoch.plan.finished and self._fetched_at_start is not None and self._fetched_at_start == self._fetched():
            self._had_all = self._fetched_at_start
        with self.lock:
            try:
                self._move_samplers()
                self.start_ahead()
            except Exception as error:
                if from_signal_handler(error):
                    raise
                # Not raised: the same error is raised again when the user starts that epoch.

    def _finish_current(self) -> None:
        """Moves what the last epoch carries over, if that epoch is finished, to the next epoch."""
        if self._next.after is not None:
            self.source.finish(self._next.after)

    def _move_samplers(self) -> None:
        """Sets the user's samplers for the next epoch, if the newest epoch is finished; hold the lock."""
        plan, number = self._next.after, self._next.number
        if plan is not None and plan.finished and not plan.outdated and number == plan.epoch + 1:
            self.source.move_on(number)

    def set_number(self, number: int) -> None:
        with self.lock:
            stays = number == self._next.loaded_number
            if stays:
                self._next = replace(self._next, restore=None)
            else:
                self._undraw_ahead()
                left = self._next.after
                if isinstance(left, IndexPlan) and not left.finished:
                    leave_epoch(left.sampler, number)
                self._next = Next(number, set_generators=self._next.set_generators)
            ahead = self._next.ahead
            if self.source.set_epoch(number, loaded=stays) and ahead is not None:  # it has another epoch's order
                self.load(self.state_of(ahead.plan))
                self.start_ahead()

    def _undraw_ahead(self) -> None:
        """Takes a stateful sampler back to the start of the epoch that was started ahead; hold the lock."""
        if self._next.ahead is not None and isinstance(plan := self._next.ahead.plan, IndexPlan):
            with plan.lock:
                plan.undraw()

    def close(self) -> None:
        """Ends the workers; the state stays at the position of the last epoch."""
        self.workers.closed = True
        plan, ahead = self._next.after, self._next.ahead
        if ahead is not None and (plan is None or plan.finished):
            plan = ahead.plan
        self._next = replace(self._next, after=plan, ahead=None)
        self.workers.close()

    def progress_of(self, epoch: Epoch) -> str:
        """How far an epoch has advanced, for `repr`; takes no lock."""
        dataset, number = self.workers.job.dataset, epoch.plan.position
        try:
            count = self.source.batches(dataset, self.workers.copied_length)
            batches = f"{number:,} of {counted(count, 'batch', 'batches')}"
        except Exception:  # the length of the dataset is unknown
            batches = counted(number, "batch", "batches")
        return f"epoch {epoch.plan.epoch}, {batches} of {describe(dataset)}"

    # -- positions ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The position of the newest epoch, or of the start of the next epoch."""
        with self.lock:
            plan = self._next.after
            if isinstance(plan, IndexPlan) and not self.delivery.draws_ahead:
                with plan.lock:
                    plan.finish_if_last()
            self._finish_current()
            self._move_samplers()
            if plan is None or plan.finished:
                plan = None if self._next.ahead is None else self._next.ahead.plan
            if plan is not None:
                return self.state_of(plan)
            if self._next.loaded is not None:
                return dict(self._next.loaded)
            number = self._next.number
            return self.sealed(number, self.source.fresh_state(number, self.workers.job.seed), False)

    def state_of(self, plan: Plan) -> dict[str, Any]:
        with plan.lock:
            position = plan.state()
        return self.sealed(plan.epoch, position, True)

    def sealed(self, number: int, position: dict[str, Any], started: bool) -> dict[str, Any]:
        """A position as a state; `started`: the sampler's pass had started."""
        job, length = self.workers.job, self.source.length(self.workers.job.dataset)
        about = {"length": length, "seed": job.seed, "epoch": number, "dataset": self._dataset_state()}
        if self._stateful:
            about["started"] = started
        if self._identity:
            about["data"] = self._identity
        return add_checksum({**about, **position})

    def load(self, state: Any, new_batch_size: bool = False) -> None:
        """Makes the next epoch start at the position `state`.

        Args:
            new_batch_size: see `DataLoader.load_state_dict`.

        Raises:
            ValueError: the position does not fit. Nothing has changed.
        """
        fields = parse_state(state)
        fitting = self.fit(fields, new_batch_size)
        job = self.workers.job_with(fields["seed"])
        has_new = any(fields.get(name) != fitting.get(name) for name in ("batch_size", "ranks"))
        set_generators = self.source.load(fitting, partial(self._load_dataset, fields), has_new)
        number = fields["epoch"]
        self._next = Next(number, loaded=fitting, loaded_number=number, set_generators=set_generators)
        self.any_started = True
        for reference in self._open:
            if (epoch := reference()) is not None:
                epoch.plan.outdated = True
        self.workers.change_job(job)

    def move(self, epoch: Epoch, state: Any, new_batch_size: bool) -> None:
        """Makes an epoch continue at the position `state`."""
        with self.lock:
            self.load(state, new_batch_size)
            executor = self.workers.executor(self._next.number)  # a new one, if workers need the loaded dataset
            plan = self._next_plan()
            set_generators = self._next.set_generators
            self._next = Next(plan.epoch + 1, plan)
        epoch.replace(executor, plan)
        if self.source.draws_late:
            epoch.draw_ahead()
        set_generators()

    def fit(self, fields: State, new_batch_size: bool = False) -> State:
        """Returns a position for this loader's batch size; changes nothing, and calls no code of the user's that could.

        Raises:
            ValueError: the position does not fit.
        """
        theirs, ours = "a bridge" if "source" in fields else "a DataLoader", self.source.loader
        if theirs != ours:
            raise ValueError(f"state: it was saved by {theirs}, not by {ours}; load it into {theirs}")
        job = self.workers.job
        _check_identity(fields.get("data", []), self._identity)
        int_field(fields, "epoch")
        check_same(fields, "length", self.source.length(job.dataset), "this dataset")
        if self.seed_given:
            check_same(fields, "seed", job.seed, "this loader")
        else:
            seed_field(fields)
        if bool(self._stateful) != (field(fields, "dataset") is not None):
            has = "has" if self._stateful else "has no"
            raise ValueError(f"state: dataset: this dataset {has} state_dict(), unlike the dataset that was saved")
        if not isinstance(started := fields.get("started", False), bool):
            raise bad_state("started", started, "must be true or false")
        if self._stateful:
            _of_parts(state_from_json(fields["dataset"]), self._stateful, job.dataset)
        return self.source.fit(fields, new_batch_size)

    @cached_property
    def _identity(self) -> list[dict[str, Any]]:
        """What a state says of the parts of the dataset and of batchify_fn; for very many parts, a hash of all."""
        found = identities(self.workers.job.dataset, self.workers.job.batchify_fn)
        if len(found) <= _MOST_PARTS:
            return found
        return [{"kind": f"{len(found)} parts", "hash": hash_of(found, digest_size=16)}]

    @cached_property
    def _stateful(self) -> list[Any]:
        """The dataset if it has a state, or the datasets with a state that it is made of."""
        job = self.workers.job
        return [] if job.iterable else _stateful_in(job.dataset)

    def _dataset_state(self) -> Any:
        dataset, parts = self.workers.job.dataset, self._stateful
        if not parts:
            return None
        states = [part.state_dict() for part in parts]
        return state_to_json(type(dataset).__name__, states[0] if parts[0] is dataset else states)

    def _load_states(self, saved: Any) -> None:
        for part, state in zip(self._stateful, _of_parts(saved, self._stateful, self.workers.job.dataset), strict=True):
            part.load_state_dict(state)

    def _load_dataset(self, fields: State) -> Callable[[], None]:
        """Loads the state of the dataset; returns what this still has to do to the global generators."""
        dataset, saved = self.workers.job.dataset, fields["dataset"]
        if not isinstance(self.source, IndexSource):
            self.source.warn_of_reading(dataset, fields)
            return _nothing
        set_generators = _nothing
        if saved is not None and saved != self._dataset_state():
            set_generators = postponed(partial(self._load_states, state_from_json(saved)))
            self.workers.stop()  # they still have the dataset from before the load
        if not fields.get("started"):
            set_generators()
            set_generators = _nothing
        return set_generators


def _stateful_in(data: Any) -> list[Any]:
    """The dataset if it has `state_dict` and `load_state_dict`, or those of the datasets in it that have them."""
    if has_state(data):
        return [data]
    parts = [part for part in parts_of(data) or () if hasattr(part, "__getitem__")]
    found = {id(inner): inner for part in parts for inner in _stateful_in(part)}
    return list(found.values())


def _of_parts(saved: Any, parts: list[Any], dataset: Any) -> list[Any]:
    """The states of these datasets in what a state says of the dataset that is made of them."""
    if parts and parts[0] is dataset:
        return [saved]
    if not isinstance(saved, list) or len(saved) != len(parts):
        raise bad_state("dataset", saved, f"must be a list of the states of {len(parts)} datasets")
    return saved


def _check_identity(saved: Any, ours: list[dict[str, Any]]) -> None:
    """Checks what a state says of the parts of the dataset and of batchify_fn."""
    kinds = [part.get("kind") for part in saved if isinstance(part, dict)] if isinstance(saved, list) else saved
    if kinds != [part["kind"] for part in ours]:
        here = ", ".join(part["kind"] for part in ours) or "no part that a state describes"
        raise bad_state("data", saved, f"this dataset and batchify_fn have {here}; pass those that were saved")
    for theirs, part in zip(saved, ours, strict=True):
        if part["kind"] == "Subset":
            if theirs.get("indices") != part["indices"]:
                warn(_OTHER_SUBSET)
            continue
        for name in [name for name in part if name in theirs]:  # a check of the vocabulary may have been added
            check_same(theirs, name, part[name], f"this {part['kind']}", "data.")
