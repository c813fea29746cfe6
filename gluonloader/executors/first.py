"""The first batch of an epoch, read by all workers at once, since all are idle then and the program waits for it.

    submit --> Task(Part) for each worker --> samples --> all have come: Task(Samples) --> batch
                                          --> an error, random numbers, shared memory, too quick: the whole task

NOTE [first batch]: no batch depends on this (P1). A part is seeded as its batch is, and reading it must draw nothing:
then batchify, which is called once for all samples, finds the generators as it would have found them after reading all.
No two samples of a part may share memory, unless it was copied as they were read: then one changes when the next is
read, and what batchify finds would depend on where the cuts are. In another process it gets copies of the samples, so
these have to be compared by value. Whatever goes wrong, in a part or in batchify, is not told: the batch is made anew
in the ordinary way, which tells it, and no first batch of this loader is split again. Nor is it if the first sample of
a part shows that to read the others is no more work than to hand them over. A part that killed its worker is not tried
again. Until it is there only so many of the batches behind it are given out that one worker is idle for batchify; the
others find room where the parts lay. Under a memory limit nothing is split, since the parts lie in slabs beside the
batch that is made of them; nor where the window is filled ahead (`auto_reload`), since nobody waits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from ..declared import in_memory
from ..loading.stats import Tally
from ..work.task import Job, Part, Samples, Task
from .base import Executor, Failed, Inbox, Made, Outcome

__all__ = ["with_first_batch"]

_LEAST: Final = 2  # samples in a part
_MOST_PARTS: Final = 16  # each is a record on the lane that they are joined on; see _LANE_DEPTH in process.py


def with_first_batch(executor: Executor, job: Job, workers: int, tally: Tally) -> Executor:
    """The executor for one iterator, with first batches split over `workers` where that may be right."""
    one_by_one = not job.iterable and getattr(job.dataset, "__getitems__", None) is None and not in_memory(job.dataset)
    return FirstBatch(executor, workers, tally) if one_by_one and workers > 1 and tally.may_split else executor


class FirstBatch:
    """Stands before another executor, for one iterator; see NOTE [first batch]."""

    def __init__(self, executor: Executor, workers: int, tally: Tally) -> None:
        self._executor, self._workers, self._tally = executor, workers, tally
        self._inbox: Inbox | None = None
        self._whole: Task | None = None  # the first task, until it is joined or made in the ordinary way
        self._out: dict[int, Task] = {}  # its parts that have not come; then what joins them
        self._read: dict[int, list[Any]] = {}
        self._made_s = 0.0
        self._reading = False
        self._room = 0  # tasks that may be given out before the first batch is there
        self._held: list[Task] = []  # the others

    def submit(self, task: Task, inbox: Inbox) -> None:
        if inbox is not self._inbox:
            self._begin(task, inbox)
        elif self._reading and not self._room:
            self._held.append(task)
        else:
            self._room -= self._reading
            self._executor.submit(task, inbox)

    def window(self, size: int, holding: bool) -> int:
        return self._executor.window(size, holding)

    def _begin(self, task: Task, inbox: Inbox) -> None:
        self._inbox, self._whole, self._out, self._read, self._held = inbox, None, {}, {}, []
        keys: Any = task.work
        count = min(self._workers, _MOST_PARTS)
        self._reading = self._tally.may_split and len(keys) >= _LEAST * count
        if not self._reading:
            self._executor.submit(task, inbox)
            return
        self._whole, self._made_s, self._room = task, 0.0, self._workers - 1
        cuts = [len(keys) * number // count for number in range(count + 1)]
        parts = [Part(number, keys[start:stop]) for number, (start, stop) in enumerate(pairwise(cuts))]
        self._out = {part.number: replace(task, work=part) for part in parts}
        for part_task in self._out.values():
            self._executor.submit(part_task, inbox)

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        while (outcome := self._executor.wait(inbox, timeout)) is not None:
            whole, work = self._whole, outcome.task.work
            if whole is None or inbox.withdrawn or not isinstance(work, (Part, Samples)):
                return outcome
            self._made_s += outcome.made_s
            if isinstance(outcome, Failed):
                self._give_up(whole, inbox)
            elif (made := self._collect(whole, work, outcome, inbox)) is not None:
                del outcome, work  # with the parts, whose slabs serve what was held back
                self._go_on(inbox)
                return made
        return None

    def _collect(self, whole: Task, work: Part | Samples, outcome: Outcome, inbox: Inbox) -> Made | None:
        """One more part has come, or the batch that is made of them."""
        try:
            found = outcome.take()
        except Exception:
            self._give_up(whole, inbox)
            return None
        if isinstance(work, Samples):
            self._whole, self._out = None, {}
            return Made(whole, found, self._made_s)
        self._read[work.number] = found
        del self._out[work.number]
        if not self._out:
            samples = [sample for _, part in sorted(self._read.items()) for sample in part]
            self._out, self._read = {0: replace(whole, work=Samples(samples))}, {}
            self._executor.submit(self._out[0], inbox)
        return None

    def _give_up(self, whole: Task, inbox: Inbox) -> None:
        """The batch is made in the ordinary way; parts that are still to come are nobody's."""
        self._whole, self._out, self._read, self._tally.may_split = None, {}, {}, False
        self._go_on(inbox, whole)

    def _go_on(self, inbox: Inbox, *first: Task) -> None:
        """Gives out what was held back."""
        held, self._held, self._reading = self._held, [], False
        for task in (*first, *held):
            self._executor.submit(task, inbox)

    def overdue(self, task: Task, timeout: float) -> BaseException:
        if task is not self._whole or self._inbox is None:
            return self._executor.overdue(task, timeout)
        errors = [self._executor.overdue(late, timeout) for late in self._out.values()]
        self._whole, self._out, self._read = None, {}, {}
        self._go_on(self._inbox)
        return errors[0]

    def wake(self) -> None:
        self._executor.wake()

    def close(self) -> None:
        self._executor.close()
