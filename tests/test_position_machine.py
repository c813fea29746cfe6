"""One state machine over positions: ranks in step, over random orders, and what a program can do between two batches.

The model is in rank_models.py, in plain Python: it divides the order of an epoch among the ranks. A program reads, in
order or as batches are made, leaves epochs, saves and loads states, also with other ranks, without ranks, or with
another batch size, copies loaders, goes to any batch, changes weights, flushes, kills workers, and asks which samples
come next and which are in a batch. Each run has the same programs; `GLUONLOADER_PROGRAMS=20000` runs so many others,
with `-o faulthandler_timeout=0` for pytest, since each test then takes minutes.
"""

import copy
import json
import os
import pickle
import signal
from contextlib import nullcontext, suppress
from itertools import islice

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, examples, workers
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from rank_models import BATCH_SAMPLERS, SAMPLERS, Division, weighted_order
from samples import Keys

from gluonloader import Ranks, merge_states

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "0"))
STEPS = 30
NAMED = {**SAMPLERS, **BATCH_SAMPLERS}
STATEFUL = {"stateful", "stateful batches"}  # with a state of their own
KNOWN = {*NAMED} - {"users", "users batches"} - STATEFUL  # of the library
FUNCTIONS = {"function", "function of batches"}  # lambdas, which cannot be pickled
SIZES = st.integers(1, 6)
POLICIES = st.sampled_from(["repeat", "drop", "uneven"])


class Positions(RuleBasedStateMachine):
    """Loaders of all ranks, each with an iterator if the epoch has started; their sampler is the one of this `name`.

    epoch, start, number    of the position where the loaders were made or have loaded: `number` batches of each rank
                            came before the offset `start`
    done                    how many batches each rank has delivered since then
    seen                    the numbers of these batches, for each rank; they come in their order if `in_order`
    alone                   whether a single process has no argument `ranks`
    left                    these of an epoch that was left, until the next one starts: a state is still in that epoch
    loaded                  whether a state was loaded, and no epoch has started since then
    resized                 the epochs that were continued with other ranks or another batch size
    jumped                  whether `set_epoch` or `seek` was called
    delivered               by rank: the batches by epoch and number, since the loaders were made
    weights                 of the sampler, if they were changed
    """

    @initialize(
        length=st.sampled_from([1, 2, 3, 7, 8, 16, 40, 61]),
        size=SIZES,
        last_batch=st.sampled_from(["keep", "keep", "discard", "rollover"]),
        count=st.integers(1, 5),
        policy=POLICIES,
        way=st.sampled_from([SERIAL] * 12 + [THREAD] * 2 + [FORK]),
        in_order=st.booleans(),
        alone=st.booleans(),
        auto_reload=st.booleans(),
    )
    def make(self, length, size, last_batch, count, policy, way, in_order, alone, auto_reload):
        self.length, self.way, self.count, self.policy = length, way, count, policy
        self.auto_reload, self.weights = auto_reload, None
        self.in_order, self.alone = in_order or way is SERIAL, alone and self.name not in STATEFUL
        of_batches = self.name in BATCH_SAMPLERS
        self.resized, self.jumped = set(), False
        self.arguments, self.order_of = NAMED[self.name]
        self.size, self.last_batch = (None, "keep") if of_batches else (size, last_batch)
        self.open()
        self.at(0, 0, 0, [[] for _ in range(count)])

    def open(self):
        rest = {} if self.size is None else {"batch_size": self.size, "last_batch": self.last_batch}
        self.loaders = []
        for rank in range(self.count):
            arguments = {**rest, **self.arguments(self.length), "batchify_fn": list, "seed": 5}
            arguments |= {"in_order": self.in_order, "auto_reload": self.auto_reload}
            arguments |= self.way.retrying(100) if self.way is FORK else {}
            if self.count > 1 or not self.alone:
                arguments |= {"ranks": Ranks(rank, self.count, self.policy)}
            self.loaders.append(self.way.loader(Keys(self.length), **arguments))
        self.delivered = [{} for _ in self.loaders]
        self.iterators = self.left = None
        self.loaded = False

    def at(self, epoch, start, number, carried):
        """Sets the model to a position where an epoch starts or goes on."""
        self.epoch, self.number, self.done = epoch, number, 0
        order = self.order_of(self.length, epoch)
        self.division = Division(order, start, self.count, self.policy, self.size, self.last_batch, carried, number)
        self.seen = [set() for _ in range(self.count)]

    def due(self, rank):
        """The batches of a rank that were not delivered, by number."""
        own, seen = self.division.batches[rank], self.seen[rank]
        return {number: batch for number, batch in enumerate(own) if number not in seen}

    def teardown(self):
        for loader in getattr(self, "loaders", ()):
            loader.close()

    @property
    def some_have_finished(self):
        """Whether some ranks have delivered all their batches: their states are positions in the next epoch."""
        done, division = self.left[2:4] if self.left else (self.done, self.division)
        return any(len(own) <= done for own in division.batches)

    # -- an epoch -----------------------------------------------------------------------------------------------------

    @rule(steps=st.integers(0, 5))
    def read(self, steps):
        self.advance(steps)

    @rule()
    def finish(self):
        self.advance(100)

    def advance(self, steps):
        """Reads batches of each rank, or the whole rest of the epoch if fewer are left."""
        if self.iterators is None and self.number == 0:
            assert [len(loader) for loader in self.loaders] == [*map(len, self.division.batches)]
        if self.iterators is None:
            self.iterators = [iter(loader) for loader in self.loaders]
            for batches in self.delivered:
                for where in [where for where in batches if where[0] == self.epoch]:
                    del batches[where]  # this pass may start with other samples that were carried over
        self.left, self.loaded = None, False
        ends = steps >= self.division.most - self.done
        for rank, iterator in enumerate(self.iterators):
            due, seen = self.due(rank), self.seen[rank]
            for _ in range(len(due) if ends else min(steps, len(due))):
                batch = next(iterator)
                number = iterator.last.number - self.number
                assert number == min(due) if self.in_order else number in due
                assert batch == due.pop(number)
                seen.add(number)
                self.delivered[rank][self.epoch, self.number + number] = batch
            assert not ends or not list(iterator)
        self.done += steps
        if ends:
            self.iterators = None
            self.at(self.epoch + 1, 0, 0, self.division.carried)

    @precondition(lambda self: self.iterators and not self.some_have_finished and self.name not in STATEFUL)
    @rule()
    def leave(self):
        """Leaves the epoch; the next one starts with what was carried over into this one."""
        self.iterators = None
        self.left = self.epoch, self.number, self.done, self.division, self.seen
        self.at(self.epoch + 1, 0, 0, self.division.carried_in)

    @precondition(lambda self: self.iterators is not None and self.name in KNOWN)
    @rule()
    def flush(self):
        for iterator in self.iterators:
            iterator.flush()

    @precondition(lambda self: self.name == "weighted" and self.iterators is not None and self.in_step)
    @rule(seed=st.integers(0, 9))
    def new_weights(self, seed):
        """New weights apply to the next sample on each rank; those before it were delivered."""
        self.weights = np.random.default_rng(seed).random(self.length) + 0.01
        for iterator in self.iterators:
            getattr(iterator.sampler, "sampler", iterator.sampler).weights = self.weights
            iterator.flush()
        self.order_of = lambda length, epoch, weights=self.weights: weighted_order(weights, epoch)
        self.division.order = self.order_of(self.length, self.epoch)  # samples that are repeated come from it, too
        self.division.__post_init__()

    @precondition(lambda self: self.way is FORK and self.iterators is not None)
    @rule()
    def kill(self):
        for loader in self.loaders:
            for pid in workers(loader)[:1]:
                with suppress(ProcessLookupError):  # it was killed before, and is not replaced yet
                    os.kill(pid, signal.SIGKILL)

    # -- positions ----------------------------------------------------------------------------------------------------

    def states(self):
        if self.left:  # the newest epoch is the one that was left
            self.epoch, self.number, self.done, self.division, self.seen = self.left
            self.left = None
        return json.loads(json.dumps([loader.state_dict() for loader in self.loaders]))

    @precondition(lambda self: not self.iterators or not self.some_have_finished)
    @rule(way=st.sampled_from(["state", "iterator", "copy", "pickle"]))
    def resume(self, way):
        """Each rank loads its own state, also into an iterator; or a copy of its loader goes on."""
        states = self.states()
        again = copy.copy if way == "copy" or self.name in FUNCTIONS else lambda one: pickle.loads(pickle.dumps(one))
        loaders = [again(loader) for loader in self.loaders] if way in ("copy", "pickle") else None
        self.teardown()
        self.open()
        self.loaded = True
        if way == "state":
            for loader, state in zip(self.loaders, states):
                loader.load_state_dict(state)
        elif way == "iterator":
            self.iterators, self.loaded = [iter(loader) for loader in self.loaders], False
            for iterator, state in zip(self.iterators, states):
                iterator.load_state_dict(state)
        else:
            self.loaders = loaders

    @precondition(lambda self: not self.left and not (self.iterators and self.some_have_finished))
    @precondition(lambda self: self.way is not FORK)  # to start workers takes long
    @rule(rank=st.integers(0, 4), steps=st.integers(0, 3))
    def use_a_copy(self, rank, steps):
        """What a copy reads changes nothing."""
        rank %= self.count
        due = list(self.due(rank).values())
        with copy.copy(self.loaders[rank]) as other:
            found = list(islice(other, steps))
            assert found == due[:steps] if self.in_order else all(batch in due for batch in found)
            other.set_epoch(7)
            next(iter(other), None)

    # With rollover, the samples that were carried over in earlier epochs count, too; test_replay.py has examples.
    @precondition(lambda self: self.name not in {*STATEFUL, "weighted"} and self.last_batch != "rollover")
    @precondition(lambda self: not self.left)
    @rule(epoch=st.integers(0, 4), number=st.integers(0, 5))
    def seek(self, epoch, number):
        order = self.order_of(self.length, epoch)
        own = Division(order, 0, self.count, self.policy, self.size, self.last_batch).batches
        if number >= min(map(len, own)) or epoch in self.resized:  # its batches may have other numbers
            return
        for loader in self.loaders:
            loader.seek(epoch, number)
        self.iterators, self.loaded, self.jumped = None, True, True
        self.at(epoch, 0, 0, [[] for _ in own])
        self.done, self.seen = number, [set(range(number)) for _ in own]

    @property
    def in_step(self):
        """Whether all ranks have delivered the same first keys, and none has some of its own that are due.

        A rank that has finished an epoch does not know any more what it had carried over into that epoch.
        """
        if self.last_batch == "rollover" and self.epoch > 0 and self.some_have_finished:
            return False
        short = any(len(own) < self.done for own in self.division.batches)
        in_order = self.in_order or self.done == 0  # what came out of order differs from run to run
        carried = {len(keys) for keys in self.division.carried_in}
        return in_order and not short and (carried == {0} or (self.number + self.done > 0 and len(carried) == 1))

    @precondition(lambda self: self.in_step and not self.left)
    @rule(count=st.integers(1, 5), size=SIZES, policy=POLICIES, alone=st.booleans(), text=st.booleans())
    def resume_elsewhere(self, count, size, policy, alone, text):
        """Other ranks, another batch size or another policy: the new ranks divide the rest of the epoch."""
        same = self.size is None or size * count == self.size * self.count
        states = self.states()
        state = merge_states(map(json.dumps, reversed(states)) if text else states) if len(states) > 1 else states[0]
        self.alone = alone and self.name not in STATEFUL
        start = self.division.after(self.done)
        number = self.number + self.done
        # A single process still knows what it was started with, which the next epoch gets if this one is left.
        kept = self.division.carried_in if self.count == count == 1 and self.size is not None else []
        kept = kept if kept and len(kept[0]) < size else [[] for _ in range(count)]
        self.teardown()
        self.count, self.policy = count, policy
        self.size = None if self.size is None else size
        self.open()
        for loader in self.loaders:
            loader.load_state_dict(state, new_batch_size=not same)
        self.at(self.epoch, start, number, kept)
        self.loaded = True
        self.resized.add(self.epoch)

    @precondition(lambda self: self.iterators is None and self.name not in STATEFUL)
    @rule(epoch=st.integers(0, 4))
    def set_epoch(self, epoch):
        for loader in self.loaders:
            loader.set_epoch(epoch)
        if epoch == self.epoch and self.loaded and not self.left:
            return  # a loaded position in this epoch stays
        self.left, self.jumped = None, True
        self.at(epoch, 0, 0, self.division.carried_in)

    # -- questions, which change nothing ------------------------------------------------------------------------------

    @precondition(lambda self: self.name in KNOWN and not self.left)
    @rule(count=st.integers(1, 30))
    def upcoming(self, count):
        following = self.order_of(self.length, self.epoch + 1)
        carried = self.division.carried
        after = Division(following, 0, self.count, self.policy, self.size, self.last_batch, carried)
        for rank, loader in enumerate(self.loaders):
            keys = [key for batch in [*self.due(rank).values(), *after.batches[rank]] for key in batch]
            assert loader.upcoming(count)[: len(keys)] == keys[:count]
        if self.in_order and self.last_batch != "rollover" and not self.some_have_finished:
            parts = [map(self.due, range(self.count)), map(dict, map(enumerate, after.batches))]
            batches = [(part, number, rank, batch) for part, ranks in enumerate(parts)
                       for rank, own in enumerate(ranks) for number, batch in own.items()]  # fmt: skip
            keys = [key for *_, batch in sorted(batches) for key in batch]
            for loader in self.loaders:
                assert loader.upcoming(count, all_ranks=True)[: len(keys)] == keys[:count]

    # What was carried over is known to `indices` only if no epoch was left out.
    @precondition(
        lambda self: self.name not in STATEFUL and not self.left and not (self.jumped and self.last_batch == "rollover")
    )
    @rule(data=st.data())
    def indices(self, data):
        """Batches that were delivered, and those that are due, have these indices, and are made again."""
        for rank, loader in enumerate(self.loaders):
            due = {(self.epoch, self.number + number): batch for number, batch in self.due(rank).items()}
            known = self.delivered[rank] | due
            if self.iterators is None and self.epoch in self.resized:  # it starts again, with batches of other sizes
                known |= self.delivered[rank]
            for where in [data.draw(st.sampled_from(sorted(known)))] if known else []:
                with suppress(ValueError) if self.may_be_unknown(where[0]) else nullcontext():
                    assert loader.indices(*where) == loader.replay(*where) == known[where]

    def may_be_unknown(self, epoch):
        """Whether a loader may say that it does not know the batches of an epoch."""
        resized = epoch in self.resized and self.number == 0  # batches before a resume had other numbers
        return resized or self.weights is not None or (self.last_batch == "rollover" and self.resized)


@pytest.mark.numpy_only
@pytest.mark.filterwarnings("ignore:.* ranks divide its order")
@pytest.mark.filterwarnings("ignore:.*has no epoch")
@pytest.mark.filterwarnings("ignore:last_batch='discard' drops all")
@pytest.mark.parametrize("name", NAMED)
def test_programs_agree_with_the_model(name):
    programs = settings(
        max_examples=(PROGRAMS or max(45, examples(150))) // len(NAMED),
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        derandomize=not PROGRAMS,
    )
    run_state_machine_as_test(type("Positions", (Positions,), {"name": name}), settings=programs)
