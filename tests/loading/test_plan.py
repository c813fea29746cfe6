"""Plans, without workers: whatever comes in whatever order, wherever it is resumed, each batch is settled once."""

import json

import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader.loading.plan import NOTHING, IndexPlan, ShardPlan, Shards, Start
from gluonloader.loading.plan.base import Progress
from gluonloader.sampler import BatchSampler
from gluonloader.state import ranges_field
from gluonloader.work.maker import Remainder, ShardBatch
from gluonloader.work.streams import Chunk


@given(window=st.integers(1, 5), choices=st.lists(st.integers(0, 99), max_size=60), again=st.integers(0, 60))
def test_next_and_ahead_are_what_is_settled(window, choices, again):
    progress, awaited, settled = Progress(0), [], set()
    for step, choice in enumerate(choices):
        if step == again:  # a resume: what was awaited is given out once more, and nothing else
            state = progress.state()
            progress, awaited = Progress(state["batch"], ranges_field(state, "ahead")), []
        while len(awaited) < window:
            number = progress.upcoming
            if not progress.pass_over(number):
                assert number not in settled
                awaited.append(number)
                progress.plan(number)
        number = awaited.pop(choice % len(awaited))
        progress.settle(number)
        settled.add(number)
        assert settled == set(range(progress.next)) | set(progress.ahead)
        assert progress.awaited == sorted(awaited)


def made(task, lengths):
    """What a worker answers."""
    work = task.work
    if not isinstance(work, Chunk):
        return work.samples
    samples = [(work.shard, i) for i in range(lengths[work.shard])][work.number * work.size :][: work.size]
    return ShardBatch(samples, None) if len(samples) == work.size else Remainder(samples)


class Run:
    """A loader in small: at most `window` tasks in flight, which complete in any order."""

    def __init__(self, plan, lengths, window, data, in_order):
        self.plan, self.lengths, self.window, self.data, self.in_order = plan, lengths, window, data, in_order
        self.flying = []

    def step(self):
        """The next batch, NOTHING, or None at the end."""
        drawn = False
        while len(self.flying) < self.window and not drawn:
            try:
                task = self.plan.next()
            except StopIteration:
                drawn = True
            else:
                if task is None:
                    break
                self.flying.append(task)
        if not self.flying:
            assert drawn
            return None
        which = 0 if self.in_order else self.data.draw(st.integers(0, len(self.flying) - 1))
        task = self.flying.pop(which)
        return self.plan.deliver(task, made(task, self.lengths))


@settings(max_examples=examples(300))
@given(
    data=st.data(),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    size=st.integers(1, 4),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
    window=st.integers(1, 5),
    in_order=st.booleans(),
)
def test_every_sample_of_every_shard_once_wherever_it_is_resumed(data, lengths, size, last_batch, window, in_order):
    shards = Shards(len(lengths), size, last_batch, 0, 2)
    carried, epochs = [], []
    for epoch in range(2):
        plan = ShardPlan(shards, epoch, 0, epoch, carried)
        run, batches = Run(plan, lengths, window, data, in_order), []
        while (batch := run.step()) is not None:
            if batch is not NOTHING:
                batches.append(batch)
            if data.draw(st.integers(0, 5)) == 0:  # saved, and loaded elsewhere
                state = json.loads(json.dumps(plan.state()))
                ShardPlan.check(shards, state)
                plan = ShardPlan(shards, epoch, 0, epoch, [], state)
                run = Run(plan, lengths, window, data, in_order)
            elif data.draw(st.integers(0, 9)) == 0:  # flushed
                plan.rewind()
                run.flying = []
        plan.finish()
        carried = plan.carry
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
def test_indices_once_wherever_they_are_resumed(data, length, size, window, last_batch):
    batches, seen = BatchSampler(range(length), size, last_batch), []
    expected = list(BatchSampler(range(length), size, last_batch))
    plan, flying = IndexPlan(batches, 0, 0, Start()), []
    while True:
        try:
            while len(flying) < window:
                flying.append(plan.next())
        except StopIteration:
            pass
        if not flying:
            break
        task = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
        seen.append((task.batch, plan.deliver(task, task.indices)))
        if data.draw(st.integers(0, 4)) == 0:
            state = json.loads(json.dumps(plan.state()))
            batches = BatchSampler(range(length), size, last_batch)
            plan, flying = IndexPlan(batches, 0, 0, IndexPlan.load(batches, state)), []
        elif data.draw(st.integers(0, 4)) == 0:
            plan.rewind()
            flying = []
    plan.finish()
    assert [indices for _, indices in sorted(seen)] == expected
    assert batches.carried == (list(range(length))[length - length % size :] if last_batch == "rollover" else [])


def test_a_state_that_says_the_impossible_is_refused_by_field():
    batches = BatchSampler(range(6), 2)
    state = IndexPlan.fresh_state(batches)
    for change, field in [
        ({"skip": 1}, "skip=1"),
        ({"batch": "x"}, "batch='x'"),
        ({"ahead": [0]}, "ahead"),
        ({"ahead": [[0, 2]]}, "ahead"),
        ({"ahead": [[3, 4], [2, 3]]}, "ahead"),
        ({"ahead": [[3, 3]]}, "ahead"),
        ({"ahead": 3}, "ahead"),
    ]:
        with pytest.raises(ValueError, match=f"state: {field}"):
            IndexPlan.load(batches, {**state, **change})
