"""Which consumer gets which batch, without processes: random programs of consumers that read, stall, skip and die."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.serving.distribution import ForAll, ForOne, Item
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
            for one in due:
                self.consumers[one.consumer].inbox.append(one.item)
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
        elif consumer.done < EPOCHS:
            self.distribution.ask(consumer.number)

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
        assert len(distribution._items) <= WINDOW or isinstance(distribution, ForOne)
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
def test_all_consumers_get_all_batches_in_order(actions, first):
    program = run(ForAll(WINDOW, False), actions, first)
    for consumer in program.consumers.values():
        numbers = [item.number for item in consumer.received]
        assert numbers == list(range(numbers[0] if numbers else program.read, program.read))


@given(usual, st.integers(0, 4))
def test_no_batch_is_lost_if_consumers_of_all_die(actions, first):
    program = run(ForAll(WINDOW, False), actions, first)
    received = {item.number for item in program.received_by_dead}
    for consumer in program.consumers.values():
        received.update(item.number for item in consumer.received)
    assert received == set(range(program.read))


@given(usual, st.integers(0, 4))
def test_each_batch_goes_to_one_consumer(actions, first):
    program = run(ForOne(), actions, first)
    items = [*program.received_by_dead, *(item for one in program.consumers.values() for item in one.received)]
    batches = Counter((item.epoch, item.batch) for item in items if item.kind is Kind.BATCH)
    assert batches == Counter({(epoch, at): 1 for epoch in range(EPOCHS) for at in range(BATCHES)})


@given(usual, st.integers(0, 4))
def test_an_epoch_of_one_ends_after_all_its_batches_were_received(actions, first):
    program = run(ForOne(), actions, first)
    for consumer in program.consumers.values():
        epochs = [(item.epoch, item.kind is Kind.END) for item in consumer.received]
        assert epochs == sorted(epochs)  # batches of an epoch, then its end
        ends = [epoch for epoch, is_end in epochs if is_end]
        assert ends == list(range(ends[0], EPOCHS)) if ends else True


@pytest.mark.parametrize("make", [lambda: ForAll(WINDOW, False), lambda: ForAll(WINDOW, True), ForOne])
@given(actions=usual, first=st.integers(0, 4))
def test_memory_is_freed_once_and_only_when_nobody_needs_it(make, actions, first):
    program = Program(make())
    for _ in range(first):
        program.attach()
    for action, which in actions:
        program.step()
        needed = {item.number for one in program.consumers.values() for item in [*one.inbox, *one.kept]}
        assert needed.isdisjoint(program.freed)
        if action == "attach":
            program.attach()
        elif program.consumers:
            getattr(program, action)(list(program.consumers.values())[which % len(program.consumers)])
    if not program.consumers:
        program.attach()
    program.run_to_the_end()
    batches = {item.number for item in program.items[: program.read] if item.kind is Kind.BATCH}
    assert program.freed == dict.fromkeys(batches, 1)
    assert program.read == len(program.items)


@given(actions_of("receive", "receive", "release", "attach"), st.integers(2, 4))
def test_a_slow_consumer_that_skips_stops_nobody(actions, first):
    program = Program(ForAll(WINDOW, True))
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
    program = Program(ForAll(WINDOW, False))
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
    program = Program(ForAll(WINDOW, False))
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
    program = Program(ForAll(WINDOW, False))
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


def test_the_position_of_one_contains_later_batches_that_were_received():
    distribution = ForOne()
    for consumer in (1, 2, 3):
        distribution.attach(consumer)
    for batch in range(4):
        distribution.add(Item(Kind.BATCH, 0, batch, None, {"epoch": 0, "batch": batch + 1, "ahead": []}))
    items = {}
    for consumer in (1, 2, 3):
        distribution.ask(consumer)
        (due,) = distribution.due()
        items[consumer] = due.item
    distribution.acknowledge(1, items[1].number)
    distribution.acknowledge(3, items[3].number)
    assert (distribution.state["batch"], distribution.state["ahead"]) == (1, [[2, 3]])
    distribution.acknowledge(2, items[2].number)
    assert (distribution.state["batch"], distribution.state["ahead"]) == (3, [])


def test_the_position_of_one_keeps_later_batches_that_its_loader_knew():
    first = {"epoch": 0, "batch": 0, "ahead": [[3, 5]]}
    distribution = ForOne(first)
    for consumer in (1, 2):
        distribution.attach(consumer)
        distribution.ask(consumer)
    for batch in range(2):
        distribution.add(Item(Kind.BATCH, 0, batch, None, {"epoch": 0, "batch": batch + 1, "ahead": [[3, 5]]}))
    one, two = distribution.due()
    distribution.acknowledge(two.consumer, two.item.number)
    assert (distribution.state["batch"], distribution.state["ahead"]) == (0, [[1, 2], [3, 5]])
    distribution.acknowledge(one.consumer, one.item.number)
    assert (distribution.state["batch"], distribution.state["ahead"]) == (2, [[3, 5]])


def test_an_error_is_no_batch_of_the_position_of_one():
    distribution = ForOne({"epoch": 0, "batch": 0, "ahead": []})
    for consumer in (1, 2):
        distribution.attach(consumer)
        distribution.ask(consumer)
    distribution.add(Item(Kind.BATCH, 0, 0))
    distribution.add(Item(Kind.ERROR, 0))
    _, error = distribution.due()
    distribution.acknowledge(error.consumer, error.item.number)
    assert distribution.state["ahead"] == []


def test_the_end_of_an_epoch_whose_batches_were_all_received_reaches_new_consumers():
    distribution = ForOne()
    distribution.attach(1)
    distribution.know(0, range(2))
    distribution.ask(1)
    for batch in range(2):
        assert distribution.wants()
        distribution.add(Item(Kind.BATCH, 0, batch))
    distribution.add(Item(Kind.END, 0))
    assert [due.item.kind for due in distribution.due()] == [Kind.END]


def test_no_epoch_of_one_starts_while_a_batch_of_the_last_one_may_come_back():
    distribution = ForOne()
    distribution.attach(1)
    distribution.attach(2)
    distribution.ask(1)
    distribution.add(Item(Kind.BATCH, 0, 0))
    (due,) = distribution.due()
    distribution.add(Item(Kind.END, 0))
    distribution.attach(3)
    distribution.ask(2)
    distribution.ask(3)
    assert not distribution.wants()
    distribution.detach(due.consumer)
    assert [one.item.kind for one in distribution.due()] == [Kind.BATCH]


def test_batches_that_another_consumer_reports_are_taken_back_from_the_queue():
    distribution = ForOne()
    distribution.attach(1)
    for batch in range(2):
        distribution.add(Item(Kind.BATCH, 0, batch))
    distribution.know(0, range(1))
    distribution.ask(1)
    assert [due.item.batch for due in distribution.due()] == [1]


def test_leaving_an_epoch_does_not_change_the_position():
    distribution = ForAll(WINDOW, False, {"epoch": 0, "batch": 0})
    distribution.attach(1)
    for batch in range(3):
        distribution.add(Item(Kind.BATCH, 0, batch, None, {"epoch": 0, "batch": batch + 1}))
    first, _ = distribution.due()
    distribution.acknowledge(1, first.item.number)
    distribution.skip(1, 0)
    assert distribution.places[1].state == {"epoch": 0, "batch": 1}


def test_batches_that_were_received_from_an_earlier_server_do_not_come_again():
    distribution = ForOne()
    distribution.attach(1)
    distribution.know(0, range(1, 3))
    got = []
    for batch in range(4):
        distribution.add(Item(Kind.BATCH, 0, batch))
    for _ in range(3):
        distribution.ask(1)
        for due in distribution.due():
            got.append(due.item.batch)
            distribution.acknowledge(1, due.item.number)
    assert got == [0, 3]
