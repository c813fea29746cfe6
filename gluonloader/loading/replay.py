"""Draws and makes any batch again, while the loader, its iterators and its samplers stay as they are.

    epoch, batch --> Order: a copy of the batch sampler --> IndexPlan at this batch --Task--> BatchMaker in the caller

NOTE [replay]: a batch is a function of the seed, the epoch and its number, if the order of the epoch is. The batches of
an epoch are numbered as a loader delivers them that started at epoch 0 and has read each epoch to its end. But users
change samplers, draw from them, and leave epochs early. So each epoch that starts is recorded (history.py): the indices
that were carried over to it, and a hash of the first indices that were drawn. The recorded indices are used, and the
first indices are drawn again and compared, before a batch of that epoch is returned. So a batch that differs from the
delivered batch is an error, as far as the loader can know.
"""

from __future__ import annotations

from typing import Any

from ..checks import check_int
from ..errors import bad_argument
from ..randomness import preserved_generators
from ..sampler import unseeded
from ..work.task import Task
from .epochs import Epochs
from .order import Order
from .plan import NOTHING, IndexPlan
from .sources import IndexSource


def indices(epochs: Epochs, epoch: int, batch: int) -> list[Any]:
    """See `DataLoader.indices`."""
    if not isinstance(epochs.source, IndexSource):
        raise TypeError("the samples of an iterable dataset have no indices; call replay(epoch, batch, read=True)")
    with preserved_generators():
        found = _draw(epochs, epoch, batch)[1].indices
    assert found is not None
    return found


def replay(epochs: Epochs, epoch: int, batch: int, read: bool) -> Any:
    """See `DataLoader.replay`."""
    workers, convert = epochs.workers, epochs.delivery.convert
    with workers.lock_here, preserved_generators():
        plan, task = _draw(epochs, epoch, batch)
        maker = workers.maker_here(epoch)
        if maker.may_draw and not epochs.seed_known:
            raise bad_argument("seed", None, _UNSEEDED.format("this loader"))
        with maker.running(), preserved_generators(maker.held):
            result = maker.make(task)
        with plan.lock:
            made = plan.accept(task, result)
        if made is NOTHING:
            raise bad_argument("batch", batch, f"this batch of epoch {epoch} has no samples that can be read")
        return made if convert is None else convert(made)


def seek(epochs: Epochs, epoch: int, batch: int) -> None:
    """See `DataLoader.seek`."""
    with epochs.lock:
        source = epochs.source
        assert isinstance(source, IndexSource)
        with preserved_generators():
            plan, _ = _draw(epochs, epoch, batch)
        history = source.history
        epochs.load(epochs.sealed(epoch, plan.state(), True))
        source.history = history
        epochs.start_ahead()


_UNSEEDED = (
    "{} has drawn its seed at random and has not started an epoch, so it cannot know the batches of another run; pass "
    "the seed of that run, which its state_dict() contains, or load a state of that run"
)


def _draw(epochs: Epochs, epoch: int, batch: int) -> tuple[IndexPlan, Task]:
    """The task of a batch, and the plan that has drawn it."""
    check_int("epoch", epoch, 0, "must be the number of an epoch, an int >= 0")
    check_int("batch", batch, 0, "must be the number of a batch in its epoch, an int >= 0")
    with epochs.lock:
        source, job, number = epochs.source, epochs.workers.job, epochs.number
        assert isinstance(source, IndexSource)
        sampler = unseeded(source.sampler)
        if sampler is not None and not epochs.seed_known:
            raise bad_argument("seed", None, _UNSEEDED.format(f"this {type(sampler).__name__}"))
        plan = Order(source, job.dataset, job.seed, number, epochs.pending).plan_at(epoch, batch)
        try:
            return plan, plan.next()
        except StopIteration:
            raise bad_argument("batch", batch, _range(plan, epoch)) from None


def _range(plan: IndexPlan, epoch: int) -> str:
    count = plan.batches
    return f"epoch {epoch} has {count} batches, numbered from 0" + (f" to {count - 1}" if count else "")
