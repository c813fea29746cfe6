"""Which consumer gets which batch, without processes: random programs of consumers that read, stall, skip and die."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.serving.distribution import Distribution, Item
from gluonloader.serving.messages import Kind

pytestmark = pytest.mark.numpy_only

BATCHES, EPOCHS, WINDOW = 7, 3, 4


class Consumer:
    """What a program does with its items: those that it has got, has received and keeps, in order."""

    def __init__(self, number, at):
        self.number, self.at = number, at
        self.inbox, self.received, self.kept = [], [], []
        self.done = 0  # epochs whose end it has got


class Program:
    """A distribution with consumers, and a loader with a few batches in each epoch.

    Attributes:
        freed: the items that were freed, by number.
        lost: what consumers had received when they died.
    """

    def __init__(self, distribution):
        self.distribution = distribution
        self.consumers, self.freed, self.received_by_dead = {}, Counter(), []
        self.items = [
            *(Item(Kind.BATCH if at < BATCHES else Kind.END, epoch, at, object(), {"epoch": epoch, "batch": at + 1})
              for epoch in range(EPOCHS) for at in range(BATCHES + 1))
        ]  # fmt: skip
        self.read = 0
        self.count = 0

    def attach(self):
        self.count += 1
        self.consumers[self.count] = Consumer(self.count, self.read)
        self.distribution.attach(self.count)
        return self.consumers[self.count]

    def step(self):
        """What the server does whenever it has something to do."""
        while True:
            due = list(self.distribution.due())
            for consumer, item in due:
                self.consumers[consumer].inbox.append(item)
            for item in self.distribution.take_freed():
                self.freed[item.number] += 1
            if self.read < len(self.items) and self.distribution.wants():
                self.distribution.add(self.items[self.read])
                self.read += 1
            elif not due:
                return

    def receive(self, consumer):
        if consumer.inbox:
            item = consumer.inbox.pop(0)
            self.distribution.acknowledge(consumer.number, item.number)
            consumer.received.append(item)
            if item.kind is Kind.BATCH:
                consumer.kept.append(item)
            else:
                consumer.done += 1

    def release(self, consumer):
        if consumer.kept:
            self.distribution.release(consumer.number, consumer.kept.pop(0).number)

    def die(self, consumer):
        del self.consumers[consumer.number]
        self.distribution.detach(consumer.number)
        self.received_by_dead += consumer.received

    def run_to_the_end(self):
        for _ in range(100 * (len(self.items) + 1)):
            self.step()
            for consumer in self.consumers.values():
                self.receive(consumer)
        for consumer in self.consumers.values():
            while consumer.kept:
                self.release(consumer)
        self.step()


def run(distribution, actions, first):
    """A program with some consumers at its start; each action is a kind and the number of a consumer."""
    program = Program(distribution)
    for _ in range(first):
        program.attach()
    for action, which in actions:
        program.step()
        assert len(distribution._items) <= WINDOW
        needed = {item.number for one in program.consumers.values() for item in [*one.inbox, *one.kept]}
        assert needed.isdisjoint(program.freed)
        if action == "attach":
            program.attach()
        elif program.consumers:
            consumer = list(program.consumers.values())[which % len(program.consumers)]
            getattr(program, action)(consumer)
    if not program.consumers:
        program.attach()
    program.run_to_the_end()
    return program


def actions_of(*names):
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 9)), max_size=150)


usual = actions_of("receive", "receive", "receive", "release", "release", "die", "attach")


@given(usual, st.integers(0, 4))
def test_all_consumers_get_all_batches_in_order_and_none_is_lost_if_consumers_die(actions, first):
    program = run(Distribution(WINDOW, False), actions, first)
    received = {item.number for item in program.received_by_dead}
    for consumer in program.consumers.values():
        numbers = [item.number for item in consumer.received]
        assert numbers == list(range(numbers[0] if numbers else program.read, program.read))
        received.update(numbers)
    assert received == set(range(program.read))


@pytest.mark.parametrize("skips", [False, True])
@given(actions=usual, first=st.integers(0, 4))
def test_memory_is_freed_once_and_only_when_nobody_needs_it(skips, actions, first):
    program = run(Distribution(WINDOW, skips), actions, first)
    batches = {item.number for item in program.items[: program.read] if item.kind is Kind.BATCH}
    assert program.freed == dict.fromkeys(batches, 1)
    assert program.read == len(program.items)


@given(actions_of("receive", "receive", "release", "attach"), st.integers(2, 4))
def test_a_slow_consumer_that_skips_stops_nobody(actions, first):
    program = Program(Distribution(WINDOW, True))
    slow, *others = [program.attach() for _ in range(first)]
    for action, which in actions:
        program.step()
        if action == "attach":
            others.append(program.attach())
        else:
            getattr(program, action)(others[which % len(others)])
    for _ in range(10 * len(program.items)):
        program.step()
        for consumer in others:
            program.receive(consumer)
    assert program.read == len(program.items)
    program.run_to_the_end()
    numbers = [item.number for item in slow.received]
    assert numbers == sorted(set(numbers))
    batches = sum(item.kind is Kind.BATCH for item in slow.received)
    assert batches + program.distribution.places[slow.number].skipped == EPOCHS * BATCHES


def test_others_wait_for_a_consumer_that_stalls_and_it_is_named():
    program = Program(Distribution(WINDOW, False))
    stalled, other = program.attach(), program.attach()
    for _ in range(20):
        program.step()
        program.receive(other)
    assert len(other.received) == WINDOW
    assert program.distribution.waits_for() == [stalled.number]
    program.die(stalled)
    program.run_to_the_end()
    assert len(other.received) == len(program.items)


def test_a_consumer_may_leave_an_epoch():
    program = Program(Distribution(WINDOW, False))
    first, second = program.attach(), program.attach()
    program.step()
    program.receive(first)
    program.distribution.skip(first.number, 0)
    first.inbox = [item for item in first.inbox if item.epoch > 0]
    first.done = 1
    program.run_to_the_end()
    assert [item.epoch for item in first.received] == [0] + [1] * (BATCHES + 1) + [2] * (BATCHES + 1)
    assert len(second.received) == len(program.items)


def test_the_position_is_that_after_the_last_batch_which_all_have_received():
    program = Program(Distribution(WINDOW, False))
    fast, slow = program.attach(), program.attach()
    program.step()
    assert program.distribution.state is None
    program.receive(fast)
    program.receive(fast)
    program.receive(slow)
    program.step()
    assert program.distribution.state == {"epoch": 0, "batch": 1}
    assert program.distribution.places[fast.number].state == {"epoch": 0, "batch": 2}
    program.die(slow)
    assert program.distribution.state == {"epoch": 0, "batch": 2}


def test_leaving_an_epoch_does_not_change_the_position():
    distribution = Distribution(WINDOW, False, {"epoch": 0, "batch": 0})
    distribution.attach(1)
    for batch in range(3):
        distribution.add(Item(Kind.BATCH, 0, batch, None, {"epoch": 0, "batch": batch + 1}))
    (_, first), _ = distribution.due()
    distribution.acknowledge(1, first.number)
    distribution.skip(1, 0)
    assert distribution.places[1].state == {"epoch": 0, "batch": 1}
