"""Which sample is to blame if a worker dies or hangs, so that its batch can be made without the sample (`on_error`).

    a worker died  -----------> blame ---------+--> submission.given_up[slot] --> backlog --> the next attempt
    a worker does not answer -> makes_progress +

Slots are explained in `Tolerance` (work/tolerance.py). If the slot is not known, since the worker was reading in bulk
or several samples at a time, the next attempt is careful: it reads one sample after another and notes each slot.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from ...errors import BatchTimeout, WorkerDied, shortened
from ...work.caught import BULK
from ...work.task import Samples, Task
from ..base import Failed, Submission
from .lane import Attempt, Death, Lane, S

_SHOWN_INDICES: Final = 16


def blame(attempt: Attempt[S], slot: int | None, death: Death[S], max_retries: int) -> tuple[bool, int]:
    """Gives up the sample that a worker was reading when it died, if the sample has killed too many workers.

    Returns:
        Whether the batch is lost, because `batchify_fn` or `on_error` kills its workers, and how many workers died.
    """
    submission = attempt.submission
    if slot in submission.given_up:
        slot = None  # the worker was not reading this sample, but has not read another one since
    deaths = submission.deaths_at[slot] = submission.deaths_at.get(slot, 0) + 1
    if deaths > max_retries and slot is not None:
        task, workers = submission.task, f"{deaths} worker{'s' if deaths > 1 else ''}"
        submission.given_up[slot] = WorkerDied(
            f"worker (pid {death.pid}) ended {death.how} while it read {_name(task, slot)}. {workers} died on this "
            "sample; to try a sample more often, raise max_retries of the executor"
        )
    return deaths > max_retries and slot is None and attempt.request.careful, deaths


def lanes_of(task: Task, lanes: Iterable[Lane[S]]) -> list[Lane[S]]:
    """The lane of a task's attempt; all lanes if the task waits for one of them."""
    every = list(lanes)
    for lane in every:
        if any(attempt.submission.task is task and not attempt.cancelled for attempt in lane.attempts.values()):
            return [lane]
    return every


def makes_progress(lane: Lane[S], timeout: float) -> tuple[bool, list[Submission]]:
    """Whether batches of a lane will still arrive, and those that have to be sent again.

    They will if the worker is not stuck, or if the sample on which it is stuck can be given up; then the worker is
    killed. A worker is not stuck as long as its start and each of its samples take less than `timeout` seconds.
    """
    started = [attempt for attempt in lane.attempts.values() if attempt.started] if lane.ready else []
    if not started:
        return time.monotonic() - lane.busy_since < timeout, []
    lane.look()
    attempt = max(started, key=lambda other: other.busy_s)  # several, if bulk reads run side by side
    slot = attempt.row  # before the time; see `note_row` in answer.py
    if attempt.busy_s < timeout:
        return True, []
    task = attempt.submission.task
    name = str(task) if slot is None else _name(task, slot)
    error = BatchTimeout(f"{name} took more than timeout={timeout} seconds; {lane.kill_stuck()}")
    return True, _give_up(lane, attempt, slot, error)


def worker_died(death: Death[S], task: Task, deaths: int, row: int | None, all_read: bool) -> WorkerDied:
    """The error for a batch whose workers died; `death` is that of the last one.

    Args:
        row: the sample that the worker was reading, if that is known.
        all_read: the worker had read all samples.
    """
    indices = task.indices
    if indices is None:
        what = "batchify_fn" if isinstance(task.work, Samples) else f"{task.sample(row or 0)}, or with batchify_fn"
    elif all_read:
        what = "batchify_fn, or with on_error if that is a function"
    elif row is None:
        shown = ", ".join(map(repr, indices[:_SHOWN_INDICES]))
        more = len(indices) - _SHOWN_INDICES
        what = f"one of its samples [{shown}{f', ... {more} more' if more > 0 else ''}], or with batchify_fn"
    elif row == len(indices) - 1:
        what = f"its last sample, {task.sample(row)}, or with batchify_fn"
    else:
        what = f"{task.sample(row)} (sample {row} of the batch)"
    return WorkerDied(
        f"worker (pid {death.pid}) ended {death.how} while it made {task}; it was busy with {what}. "
        f"{deaths} worker{'s' if deaths > 1 else ''} died on this batch. The loader continues with the next "
        "batch; to try a batch more often, raise max_retries of the executor"
    )


def describe_death(lane: Lane[S], death: Death[S]) -> str:
    """A line for the log, to be called before the dispatcher handles the death."""
    made = [str(attempt.submission.task) for attempt in death.attempts if attempt.started]
    idle = "had no batch to make" if lane.ready else "started"
    doing = f"made {' and '.join(made)}" if made else idle
    return shortened(f"worker {lane.worker} (pid {death.pid}) ended {' '.join(death.how.split())} while it {doing}")


def _give_up(lane: Lane[S], attempt: Attempt[S], slot: int | None, error: Exception) -> list[Submission]:
    """Cancels the attempts of a lane whose worker was killed, since it was stuck at `slot` of one of the attempts."""
    again: list[Submission] = []
    for other in list(lane.attempts.values()):
        submission = other.submission
        if other.cancelled:
            continue
        if other is attempt and slot is not None and slot not in submission.given_up:
            submission.given_up[slot] = error
        elif other is attempt and attempt.request.careful:  # batchify_fn or on_error hangs
            submission.window.put(Failed(submission.task, error))
        elif other is attempt:
            submission.deaths += 1  # so that the next attempt is careful
        other.cancel()
        if submission.window.wants(submission.task):
            again.append(submission)
    return again


def _name(task: Task, slot: int) -> str:
    if slot == BULK:
        return f"dataset.__getitems__ for {task}"
    row = slot % len(task.indices or [0])
    return f"{task.sample(row)} (sample {row} of {task})"
