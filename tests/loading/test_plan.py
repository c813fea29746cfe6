"""Plans, without workers: batches complete in any order, a resume may come anywhere, and each batch comes once."""

import itertools
import json

import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader import BatchSampler
from gluonloader.loading.plan import NOTHING, IndexPlan
from gluonloader.loading.plan.shards import ShardPlan
from gluonloader.position.indices import fit, fresh_state, load
from gluonloader.position.progress import Progress, Start
from gluonloader.position.shards import Shards, check
from gluonloader.state import ranges_field
from gluonloader.work.in_flight import InFlight
from gluonloader.work.streams import ShardBatch, ShardEnd
from gluonloader.work.task import Chunk, Task


@given(
    window=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.sampled_from(["settle"] * 8 + ["save", "rewind", "interrupt"]), st.integers(0, 99)), max_size=60
    ),
)
def test_progress_agrees_with_a_set_of_settled_numbers(window, steps):
    tasks = InFlight()
    progress, settled = Progress(0, (), tasks), set()
    for step, choice in steps:
        while len(progress.in_flight) < window:
            number = progress.upcoming
            assert progress.issue(Task(0, number, 0, [number])) == (number not in settled)
        in_flight = progress.in_flight
        unsettled = (number for number in range(1000) if number not in settled)
        assert in_flight == list(itertools.islice(unsettled, window))
        if step == "settle":
            number = in_flight[choice % window]
            tasks.settle(tasks.tasks[choice % window])
            settled.add(number)
        elif step == "rewind":
            progress.rewind()
        elif step == "interrupt":  # before the number of the task that was issued last is counted
            progress.upcoming = max(in_flight)
            progress.resume()
        else:
            state = json.loads(json.dumps(progress.state()))
            tasks = InFlight()
            progress = Progress(state["batch"], ranges_field(state, "ahead"), tasks)
        first = next(number for number in range(1000) if number not in settled)
        assert progress.position == first
        ahead = list(itertools.chain.from_iterable(progress.ahead))
        assert ahead == sorted(number for number in settled if number > first)


def made(task, lengths):
    """What a worker makes of a task."""
    work = task.work
    if not isinstance(work, Chunk):
        return work.samples
    samples = [(work.shard, i) for i in range(lengths[work.shard])][work.number * work.size :][: work.size]
    return ShardBatch(samples, None) if len(samples) == work.size else ShardEnd(samples)


class Run:
    """A small model of a loader: at most `window` tasks in flight, which complete in any order."""

    def __init__(self, plan, lengths, window, data, in_order):
        self.plan, self.lengths, self.window, self.data, self.in_order = plan, lengths, window, data, in_order

    def step(self):
        """The next batch, NOTHING, or None at the end."""
        exhausted, in_flight = False, self.plan.in_flight
        while len(in_flight) < self.window and not exhausted:
            try:
                if self.plan.next() is None:
                    break
            except StopIteration:
                exhausted = True
        if not in_flight:
            assert exhausted
            return None
        chosen = 0 if self.in_order else self.data.draw(st.integers(0, len(in_flight) - 1))
        task = in_flight.tasks[chosen]
        batch = self.plan.accept(task, made(task, self.lengths))
        if self.data.draw(st.integers(0, 5)) == 0:  # an exception came before the task was settled
            self.plan.resume()
            batch = self.plan.accept(task, made(task, self.lengths))
        in_flight.settle(task)
        return batch


@settings(max_examples=examples(300))
@given(
    data=st.data(),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    size=st.integers(1, 4),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
    window=st.integers(1, 5),
    in_order=st.booleans(),
)
def test_every_sample_of_every_shard_comes_once_despite_resumes(data, lengths, size, last_batch, window, in_order):
    shards = Shards(len(lengths), size, last_batch, 0, 2)
    carried, epochs = [], []
    for epoch in range(2):
        plan = ShardPlan(shards, epoch, 0, epoch, carried)
        run, batches = Run(plan, lengths, window, data, in_order), []
        while (batch := run.step()) is not None:
            if batch is not NOTHING:
                batches.append(batch)
            if data.draw(st.integers(0, 5)) == 0:  # saved, and loaded into a new plan
                state = json.loads(json.dumps(plan.state()))
                check(shards, {**state, "epoch": epoch})
                plan = ShardPlan(shards, epoch, 0, epoch, [], state)
                run = Run(plan, lengths, window, data, in_order)
            elif data.draw(st.integers(0, 9)) == 0:  # flushed
                plan.rewind()
        plan.finish()
        carried = plan.carried_over
        epochs.append(batches)
    everything = [(shard, i) for shard, length in enumerate(lengths) for i in range(length)]
    total = len(everything)
    for number, batches in enumerate(epochs):
        samples = [sample for batch in batches for sample in batch]
        assert sum(len(batch) < size for batch in batches) <= (last_batch == "keep")
        if last_batch == "keep":
            assert sorted(samples) == everything
        elif last_batch == "discard":
            assert len(samples) == len(set(samples)) == total - total % size
        elif number == 0:
            assert len(samples) == len(set(samples)) == total - total % size
    if last_batch == "rollover":
        both = sorted(sample for batches in epochs for batch in batches for sample in batch)
        assert len(both) == 2 * total - 2 * total % size
        assert all(both.count(sample) <= 2 for sample in both)
        first = {sample for batch in epochs[0] for sample in batch}
        second = [sample for batch in epochs[1] for sample in batch]
        assert all(second.count(sample) <= 2 - (sample in first) for sample in second)


@given(
    data=st.data(), length=st.integers(0, 20), size=st.integers(1, 5), window=st.integers(1, 4),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
)  # fmt: skip
def test_every_batch_of_indices_comes_once_despite_resumes(data, length, size, window, last_batch):
    batches, seen = BatchSampler(range(length), size, last_batch), []
    expected = list(BatchSampler(range(length), size, last_batch))
    plan = IndexPlan(batches, 0, 0, Start())
    while True:
        try:
            while len(plan.in_flight) < window:
                plan.next()
        except StopIteration:
            pass
        if not plan.in_flight:
            break
        task = data.draw(st.sampled_from(plan.in_flight.tasks))
        seen.append((task.batch, plan.accept(task, task.indices)))
        plan.in_flight.settle(task)
        if data.draw(st.integers(0, 4)) == 0:
            state = json.loads(json.dumps(plan.state()))
            batches = BatchSampler(range(length), size, last_batch)
            plan = IndexPlan(batches, 0, 0, load(batches, fit(batches, state, False)))
        elif data.draw(st.integers(0, 4)) == 0:
            plan.rewind()
    plan.finish()
    plan.carry_over()
    assert [indices for _, indices in sorted(seen)] == expected
    assert batches.carried == (list(range(length))[length - length % size :] if last_batch == "rollover" else [])


def test_a_state_with_an_impossible_field_is_refused_and_the_field_named():
    batches = BatchSampler(range(6), 2)
    state = fresh_state(batches)
    for change, field in [
        ({"batch": 1}, "batch=1: must be at most offset=0"),
        ({"offset": 7}, "offset=7: must be at most 6"),
        ({"rank": 1}, "rank=1: must be less than ranks=1"),
        ({"ranks": 0}, "ranks=0"),
        ({"last_batch": "discard"}, "last_batch='discard'"),
        ({"batch_size": None}, "batch_size=None"),
        ({"carried": [3]}, r"carried=\[3\]: must be a list of at most 0 indices"),
        ({"batch": "x"}, "batch='x'"),
        ({"ahead": [0]}, "ahead"),
        ({"ahead": [[0, 2]]}, "ahead"),
        ({"ahead": [[3, 4], [2, 3]]}, "ahead"),
        ({"ahead": [[3, 3]]}, "ahead"),
        ({"ahead": 3}, "ahead"),
    ]:
        with pytest.raises(ValueError, match=f"state: {field}"):
            fit(batches, {**state, **change}, False)
