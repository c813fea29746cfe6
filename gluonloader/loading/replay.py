"""Any batch of any epoch: its indices, the batch itself, and the position before it; and the indices that come next.

    epoch, batch --> known_order.py --> IndexPlan at this batch --Task--> BatchMaker in the calling thread
                     reading_again.py: for an iterable dataset
    position --> an IndexPlan for each rank from there on --> `upcoming`

`indices`, `replay` and `upcoming` change nothing: the loader, its iterators and its samplers stay as they are.

NOTE [replay]: if the order of an epoch is a function of the seed and the epoch, so is each of its batches. The numbers
of batches are those of a loader that started at epoch 0 and has read each epoch to its end. But users change samplers,
draw from them, and leave epochs early. So each epoch that starts is noted (`History` in index_source.py): the epoch of
its order, where it was resumed, the indices that were carried over to it, and a hash of the first indices that were
drawn. The noted indices are used, and the first indices are drawn again and compared, before a batch of that epoch is
returned. So a batch that differs from the delivered batch is an error, as far as the loader can know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..checks import check_flags, check_int
from ..errors import bad_argument
from ..indices import as_list
from ..position.cut import cut_of
from ..randomness import PreservedGenerators
from ..sampler.base import copy_of, is_computed, unseeded
from ..sampler.users import set_epoch
from ..work.maker import BatchMaker
from ..work.task import Task
from ..work.tolerance import Tolerated
from . import reading_again
from .ahead import tasks_ahead
from .epochs import Epochs
from .index_source import IndexSource
from .known_order import KnownOrder
from .plan import IndexPlan
from .shard_source import ShardSource


def indices(epochs: Epochs, epoch: int, batch: int) -> list[Any]:
    """See `DataLoader.indices`."""
    epoch, batch = _numbers(epoch, batch)
    if isinstance(epochs.source, ShardSource):
        raise TypeError("the samples of an iterable dataset have no indices; call replay(epoch, batch, read=True)")
    found = _draw(epochs, epoch, batch)[1].indices
    assert found is not None
    return found


def upcoming(epochs: Epochs, count: int, all_ranks: bool) -> list[Any]:
    """See `DataLoader.upcoming`."""
    count = check_int("count", count, 1, "must be a number of samples, an int >= 1")
    check_flags(all_ranks=all_ranks)
    source, seed = epochs.source, epochs.workers.job.seed
    if isinstance(source, ShardSource):
        raise ValueError("dataset: it is iterable, so what comes next is known only when it is read")
    if not is_computed(source.sampler):
        name = type(getattr(source.sampler, "sampler", source.sampler)).__name__
        right = "so what it yields next is known only when it is drawn; pass a function of the epoch"
        raise ValueError(f"sampler: this {name} is your own, {right}")
    state = epochs.state()
    copies = _of_ranks(source.sampler, all_ranks)
    if len(copies) > 1 and state["carried"]:
        raise ValueError(
            "all_ranks=True: with last_batch='rollover', the indices that the other ranks have carried over are not "
            "known here; call the method at the start of the first epoch, or use another last_batch"
        )
    found: list[Any] = []
    for tasks in tasks_ahead(copies, state, seed):
        for task in tasks:
            found += as_list(task.indices) if task is not None else []
        if len(found) >= count:
            break
    return found[:count]


def _of_ranks(batch_sampler: Any, all_ranks: bool) -> list[Any]:
    """A copy of the batch sampler; or for each rank one that yields its batches."""
    share = cut_of(batch_sampler).share
    if share is None or not all_ranks:
        return [copy_of(batch_sampler)]
    copies = [copy_of(batch_sampler) for _ in range(share.num_shards)]
    for rank, batches in enumerate(copies):
        own = cut_of(batches).share
        assert own is not None, "it is a copy"
        own.index = rank
    return copies


def replay(epochs: Epochs, epoch: int, batch: int, read: bool) -> Any:
    """See `DataLoader.replay`."""
    epoch, batch = _numbers(epoch, batch)
    workers, convert = epochs.workers, epochs.delivery.convert
    with workers.lock_here, PreservedGenerators():
        made = _make(epochs, epoch, batch, read)
        return made if convert is None else convert(made)


def seek(epochs: Epochs, epoch: int, batch: int) -> None:
    """See `DataLoader.seek`."""
    epoch, batch = _numbers(epoch, batch)
    with epochs.workers.lock_here, epochs.lock:
        state = epochs.sealed(epoch, _position(epochs, epoch, batch), True)
        source = epochs.source
        before = epochs.number
        history = source.known_history(before) if isinstance(source, IndexSource) else None
        epochs.load(state)
        if isinstance(source, IndexSource) and history is not None:
            source.history = history  # what was delivered before stays known
            if epoch != before:
                history.leave_loaded()
            set_epoch(source.sampler, epoch, loaded=True)
        epochs.start_ahead()


def _make(epochs: Epochs, epoch: int, batch: int, read: bool) -> Any:
    source, job = epochs.source, epochs.workers.job
    if isinstance(source, ShardSource):
        reading_again.check_read(source, job.dataset, batch, read)
        with _making(epochs, epoch) as maker:
            return reading_again.make(source, job, maker, epoch, batch)
    task = _draw(epochs, epoch, batch)[1]
    with _making(epochs, epoch) as maker:
        made = maker.make(task)
    if type(made) is not Tolerated:
        return made
    if made.is_empty:
        right = f"all samples of this batch of epoch {epoch} raised errors and were skipped, so there is no batch"
        raise bad_argument("batch", batch, f"{right}; pass on_error='raise' to see the errors")
    return made.batch


def _position(epochs: Epochs, epoch: int, batch: int) -> dict[str, Any]:
    """The fields of a state before a batch."""
    source, job = epochs.source, epochs.workers.job
    if isinstance(source, ShardSource):
        reading_again.check_read(source, job.dataset, batch, read=True)
        with PreservedGenerators(), _making(epochs, epoch):
            return reading_again.position(source, job, epoch, batch)
    return _draw(epochs, epoch, batch)[0].state()


@contextmanager
def _making(epochs: Epochs, epoch: int) -> Iterator[BatchMaker]:
    """Within the block, this thread makes batches as worker 0; afterwards, the random generators are restored."""
    maker, source = epochs.workers.maker_here(epoch), epochs.source
    uses_seed = maker.may_draw or (isinstance(source, ShardSource) and source.shards.shuffle_buffer > 0)
    if uses_seed and not (epochs.seed_given or epochs.any_started):
        raise bad_argument("seed", None, _UNSEEDED.format("this loader"))
    running, generators = maker.running(), PreservedGenerators(maker.held)
    try:
        with running, generators:
            yield maker
    finally:
        running.restore()
        generators.restore()


_UNSEEDED = (
    "{} has drawn its seed at random and no epoch has started, so it cannot know the batches of another run; pass the "
    "seed of that run, which its state_dict() contains, or load a state of that run"
)


def _length(plan: IndexPlan) -> int | None:
    """The number of batches in the epoch; None if its sampler does not know it."""
    try:
        return plan.batches
    except TypeError:
        return None


def _numbers(epoch: Any, batch: Any) -> tuple[int, int]:
    epoch = check_int("epoch", epoch, 0, "must be the number of an epoch, an int >= 0")
    return epoch, check_int("batch", batch, 0, "must be the number of a batch in its epoch, an int >= 0")


def _draw(epochs: Epochs, epoch: int, batch: int) -> tuple[IndexPlan, Task]:
    """The task of a batch, and the plan that has drawn it."""
    with epochs.lock:
        source, job, number = epochs.source, epochs.workers.job, epochs.number
        assert not isinstance(source, ShardSource)
        sampler = unseeded(source.sampler)
        if sampler is not None and not epochs.any_started:
            raise bad_argument("seed", None, _UNSEEDED.format(f"this {type(sampler).__name__}"))
        order = KnownOrder(source, job.dataset, job.seed, number, epoch)
        with nullcontext() if order.is_computed else PreservedGenerators():
            plan = order.plan_at(batch)
            try:
                return plan, plan.next()
            except StopIteration:
                count = _length(plan)
        if count is None:
            raise bad_argument("batch", batch, f"epoch {epoch} has fewer batches")
        last = f" to {count - 1}" if count else ""
        raise bad_argument("batch", batch, f"epoch {epoch} has {count} batches, numbered from 0{last}")
