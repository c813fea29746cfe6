"""`on_error` and its limit: samples that raise errors, with every executor, and after a resume."""

from __future__ import annotations

import asyncio
import bdb
import contextlib
import copy
import gc
import json
import logging
import os
import pickle
import random
import re
import signal
import sys
import weakref

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, eventually
from faulty import AsyncFaulty, AsyncFaultyInBulk, Faulty, FaultyInBulk, load, negative, negative_or_skip
from mistakes import mistakes

import gluonloader as gl
from gluonloader.options import OnError
from gluonloader.state import add_checksum

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only]

SAMPLES = int(os.environ.get("GLUONLOADER_BAD_SAMPLES", "2000"))  # 100000 for the full test
PLACES = 50 if SAMPLES >= 100_000 else 5


def indices_of(batches):
    return [row[0] for batch in batches for row in batch]


@pytest.mark.parametrize(
    ("dataset", "policy"),
    [
        (Faulty(), "skip"), (Faulty(), "replace"), (Faulty(), negative), (Faulty(), negative_or_skip),
        (FaultyInBulk(), "skip"), (FaultyInBulk(), "replace"),
    ],
)  # fmt: skip
def test_batches_are_the_same_with_every_executor(every_way, policy, dataset):
    batches = load(every_way, dataset, 8, True, on_error=policy)
    assert batches == load(SERIAL, dataset, 8, True, on_error=policy)
    good = sorted(index for index in range(100) if index % 10 != 3)
    if policy == "skip":
        assert sorted(indices_of(batches)) == good
    elif policy == "replace":
        assert [len(batch) for batch in batches] == [8] * 12 + [4]
        assert set(indices_of(batches)) == set(good)
    else:
        bad = [-index for index in range(3, 100, 10) if policy is negative or index <= 50]
        assert sorted(indices_of(batches)) == sorted(bad + good)


@pytest.mark.parametrize("policy", ["skip", "replace", negative_or_skip])
@pytest.mark.parametrize(
    ("dataset", "one_by_one"), [(Faulty(), Faulty()), (AsyncFaulty(), Faulty()), (FaultyInBulk(), FaultyInBulk()),
                                (AsyncFaultyInBulk(), FaultyInBulk())]
)  # fmt: skip
def test_batches_are_the_same_if_several_samples_are_read_at_a_time(any_way, policy, dataset, one_by_one):
    expected = load(SERIAL, one_by_one, 8, True, on_error=policy)
    assert load(any_way, dataset, 8, True, on_error=policy, concurrency=4) == expected


def test_a_sample_has_the_same_random_numbers_whether_or_not_others_fail():
    whole = {row[0]: row[1] for batch in load(SERIAL, Faulty(every=1000), 8, on_error="skip") for row in batch}
    rows = [row for batch in load(SERIAL, Faulty(), 8, on_error="skip") for row in batch]
    assert all(whole[index] == number for index, number in rows)


@pytest.mark.parametrize("size", [1, 2, 20])
def test_large_samples_are_left_out_wherever_they_stand(any_way, size):
    dataset = Faulty(40, 4, width=20_000)
    for policy in ("skip", "replace"):
        batches = load(any_way, dataset, size, on_error=policy)
        assert all(np.array(batch).shape[1:] == (20_000,) for batch in batches)
        expected = load(SERIAL, Faulty(40, 4), size, on_error=policy)
        assert [[row[:2] for row in batch] for batch in batches] == expected


def test_an_empty_batch_is_left_out(any_way):
    dataset = gl.SimpleDataset(range(10)).transform(only_from_four)
    with any_way.loader(dataset, 2, on_error=OnError("skip", 4)) as loader:
        assert len(loader) == 5
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[4, 5], [6, 7], [8, 9]]
        assert loader.stats().errors == 8


def only_from_four(index):
    if index < 4:
        raise ValueError("too small")
    return index


def until_error(loader, before_each=lambda: None):
    """The batches of a loader until it raises TooManyErrors, and the text of that error."""
    batches, iterator = [], iter(loader)
    try:
        while True:
            before_each()
            batches.append(next(iterator).tolist())
    except gl.errors.TooManyErrors as error:
        return batches, str(error)


@pytest.mark.parametrize("policy", ["skip", "replace", negative])
def test_a_resume_continues_with_the_same_batches_and_counts_on(any_way, policy):
    arguments = {"on_error": OnError(policy, 8)}
    with SERIAL.loader(Faulty(), 7, True, **arguments) as loader:
        states = []
        batches, errors = until_error(loader, lambda: states.append(json.dumps(loader.state_dict())))
    assert "more than limit=8 of on_error allows" in errors
    for place in (1, len(states) // 2, len(states) - 1):
        with any_way.loader(Faulty(), 7, True, **arguments) as loader:
            loader.load_state_dict(states[place])
            found, text = until_error(loader)
            assert found == batches[place:]
            assert text.partition(".")[0] == errors.partition(".")[0]


def test_a_state_has_a_count_only_with_on_error():
    assert "errors" not in SERIAL.loader(Faulty(), 7).state_dict()
    with SERIAL.loader(Faulty(), 7, on_error=OnError("skip", 20)) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
        assert state["errors"] == 2
        loader.load_state_dict(state)
        assert loader.state_dict()["errors"] == 2
        edited = add_checksum({**state, "errors": "two"})
        with pytest.raises(ValueError, match="errors='two': must be an int >= 0"):
            loader.load_state_dict(edited)


@pytest.mark.parametrize("in_order", [True, False])
def test_too_many_errors_end_the_epoch_at_the_same_batch(any_way, in_order):
    with any_way.loader(Faulty(), 5, on_error=OnError("skip", 6), in_order=in_order) as loader:
        batches, text = until_error(loader)
        assert re.match(r"(?s)7 samples of epoch 0.*limit=6 of on_error.*pass a larger limit", text)
        assert len(batches) == 12 or not in_order
        state = loader.state_dict()
        assert state["errors"] == 6
    with any_way.loader(Faulty(), 5, on_error=OnError("skip", 10)) as loader:
        loader.load_state_dict(state)
        rest = [batch.tolist() for batch in loader]
        assert sorted(indices_of(batches + rest)) == [index for index in range(100) if index % 10 != 3]
        assert len(list(loader)) == 20  # each epoch is counted separately
        assert loader.stats().errors == 14


def test_the_error_lists_the_first_ten_samples(any_way):
    with any_way.loader(Faulty(), 50, on_error=OnError("skip", 0.09)) as loader:
        _, text = until_error(loader)
    lines = text.splitlines()
    assert lines[1:-1] == [f"  dataset[{index}]: OSError: cannot read {index}" for index in range(3, 100, 10)]


def test_without_a_limit_one_percent_may_fail():
    assert len(load(SERIAL, Faulty(1000, 100), 10, on_error=OnError("skip"))) == 100
    with pytest.raises(gl.errors.TooManyErrors, match="11 samples of epoch 0 .* limit=10 "):
        load(SERIAL, Faulty(1000, 90), 10, on_error=OnError("skip"))
    assert len(load(SERIAL, Faulty(9, 10), 3, on_error=OnError("skip"))) == 3  # at least one sample
    with pytest.raises(gl.errors.TooManyErrors):
        load(SERIAL, Faulty(9, 10), 3, on_error=OnError("skip", 0))


def test_the_same_error_is_logged_once(any_way, caplog):
    dataset = gl.SimpleDataset(range(10)).transform(only_from_four)
    caplog.set_level(logging.WARNING, "gluonloader")
    with any_way.loader(dataset, 2, on_error=OnError("skip", 4)) as loader:
        list(loader), list(loader)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "dataset[0] raised an error, so on_error applies: ValueError: too small"
    ]


def test_flush_counts_no_sample_twice():
    with THREAD.loader(Faulty(), 5, on_error=OnError("skip", 10)) as loader:
        iterator, found = iter(loader), []
        for batch in iterator:
            found.append(batch.tolist())
            if not iterator.ended:
                iterator.flush()
        assert found == load(SERIAL, Faulty(), 5, on_error="skip")


# -- replace and functions ---------------------------------------------------------------------------------------------


def test_replace_takes_only_samples_of_the_split():
    training = list(range(0, 100, 2)) + [3, 13]
    batches = load(SERIAL, Faulty(), 13, sampler=training, on_error="replace")
    assert [len(batch) for batch in batches] == [13] * 4
    assert set(indices_of(batches)) <= set(training)
    batches = load(SERIAL, Faulty(), batch_sampler=[[3, 4, 13, 14], [23, 5, 6]], on_error="replace")
    assert [set(indices_of([batch])) <= {4, 14, 5, 6} for batch in batches] == [True, True]


@pytest.mark.parametrize("arguments", [{"batch_sampler": [[1], [3], [4]]}, {"sampler": [1, 3, 4], "batch_size": 1}])
def test_if_no_other_sample_can_be_read_the_error_is_raised(any_way, arguments):
    with any_way.loader(Faulty(), on_error="replace", **arguments) as loader:
        iterator = iter(loader)
        assert next(iterator)[0, 0] == 1
        with pytest.raises(OSError, match="cannot read 3") as caught:
            next(iterator)
        notes = "".join(caught.value.__notes__)
        assert "found no other sample" in notes
        assert "dataset[3], batch 1 of epoch 0" in notes
        assert next(iterator)[0, 0] == 4


def test_if_all_samples_are_bad_the_error_is_raised():
    with pytest.raises(OSError, match="cannot read 0"):
        load(SERIAL, gl.SimpleDataset(range(10)).transform(fail), 2, on_error="replace")


def fail(index):
    raise OSError(f"cannot read {index}")


def raise_on(error, index):
    raise KeyError(index)


def test_an_error_of_the_function_is_raised(any_way):
    with any_way.loader(Faulty(), 5, on_error=OnError(raise_on, 1.0)) as loader:
        with pytest.raises(KeyError, match="3") as caught:
            next(iter(loader))
        assert "on_error for dataset[3], batch 0 of epoch 0" in "".join(caught.value.__notes__)


class Exits(Faulty):
    def __getitem__(self, index):
        return super().__getitem__(index) if index != 4 else sys.exit("enough")


def test_sys_exit_in_a_sample_is_an_error_like_others(any_way):
    assert indices_of(load(any_way, Exits(10), 5, on_error="skip")) == [0, 1, 2, 5, 6, 7, 8, 9]
    with any_way.loader(Exits(10), 5, on_error=OnError("skip", 1)) as loader:
        _, text = until_error(loader)
    assert "dataset[4]: RuntimeError: dataset[4] raised SystemExit(enough" in text


class Interrupted(Faulty):
    def __getitem__(self, index):
        if index == 6:
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().__getitem__(index)


class HandlerError(Exception):
    pass


def test_the_error_of_a_signal_handler_is_not_one_of_the_sample():
    def handler(number, frame):
        raise HandlerError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with SERIAL.loader(Interrupted(10), 2, on_error=OnError("skip", 1)) as loader:
            iterator = iter(loader)
            assert [next(iterator)[0, 0] for _ in range(3)] == [0, 2, 4]
            with pytest.raises(HandlerError):
                next(iterator)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            assert next(iterator)[0, 0] == 6
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_skip_is_one_object():
    assert repr(gl.SKIP) == "gluonloader.SKIP"
    assert pickle.loads(pickle.dumps(gl.SKIP)) is copy.deepcopy(gl.SKIP) is gl.SKIP


# -- batchify ----------------------------------------------------------------------------------------------------------


class Ragged(Faulty):
    def __getitem__(self, index):
        return super().__getitem__(index) if index != 6 else np.zeros(3, np.int64)


def test_an_error_of_batchify_is_raised_and_names_the_right_sample(any_way):
    with any_way.loader(Ragged(10), 8, on_error=OnError("skip", 4)) as loader:
        iterator = iter(loader)
        with pytest.raises(gl.errors.BatchifyError, match=r"sample 6 \(row 5 of batch 0\)"):
            next(iterator)
        assert next(iterator)[:, 0].tolist() == [8, 9]


# -- iterable datasets -------------------------------------------------------------------------------------------------


def not_seven(number):
    if number % 20 == 7:
        raise ValueError("seven")
    return number


def is_not_nine(number):
    if number % 20 == 9:
        raise ValueError("nine")
    return number % 3 != 0


class Numbers:
    """An iterable dataset with a state, so that a resume does not warn."""

    def __init__(self, size):
        self.size, self.next = size, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        first, self.next = self.next, 0
        for number in range(first, self.size):
            self.next = number + 1
            yield number

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


def stream(size=100):
    return gl.IterableDataset(Numbers(size)).transform(not_seven).filter(is_not_nine).transform(not_eleven)


def not_eleven(number):
    if number % 20 == 11:
        raise ValueError("eleven")
    return number


def good_numbers(size=100):
    return [number for number in range(size) if number % 20 not in (7, 9, 11) and number % 3]


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_transforms_of_iterable_datasets_may_fail(any_way, last_batch):
    arguments = {"on_error": OnError("skip", 20), "last_batch": last_batch}
    data = gl.IterableDataset(stream(), num_shards=2)
    with any_way.loader(data, 6, **arguments) as loader, SERIAL.loader(data, 6, **arguments) as serial:
        for _ in range(3):
            batches = [batch.tolist() for batch in loader]
            assert batches == [batch.tolist() for batch in serial]
            if last_batch == "keep":
                assert sorted(sum(batches, [])) == good_numbers()
        assert loader.stats().errors == serial.stats().errors


def minus(error, number):
    return -number


def test_a_function_gets_the_sample_of_an_iterable_dataset(any_way):
    with any_way.loader(gl.IterableDataset(stream(), num_shards=2), 6, on_error=OnError(minus, 20)) as loader:
        found = sorted(number for batch in loader for number in batch.tolist())
    bad = [-number for number in range(100) if number % 20 in (7, 9) or (number % 20 == 11 and number % 3)]
    assert found == sorted(bad + good_numbers())


def test_an_iterable_dataset_resumes_with_the_same_batches_and_count(any_way):
    arguments = {"on_error": OnError("skip", 20)}
    with any_way.loader(gl.IterableDataset(stream(), num_shards=3), 4, **arguments) as loader:
        batches, states = [], []
        iterator = iter(loader)
        for batch in iterator:
            batches.append(batch.tolist())
            states.append(loader.state_dict())
        total = loader.stats().errors
    for place in (0, len(states) // 2, len(states) - 2):
        with SERIAL.loader(gl.IterableDataset(stream(), num_shards=3), 4, **arguments) as loader:
            loader.load_state_dict(states[place])
            assert [batch.tolist() for batch in loader] == batches[place + 1 :]
            assert loader.stats().errors == total - states[place]["errors"]


def test_too_many_errors_in_an_iterable_dataset(any_way):
    with any_way.loader(gl.IterableDataset(stream(), num_shards=2), 4, on_error=OnError("skip", 2)) as loader:
        _, text = until_error(loader)
    assert re.search(r"\n  sample \d+ of shard \d: ValueError: \w+\n", text)


def broken():
    yield from range(3)
    raise OSError("the connection was lost")


def test_an_error_of_the_iterator_is_raised(any_way):
    with any_way.loader(gl.IterableDataset(broken, num_shards=1), 2, on_error=OnError("skip", 5)) as loader:
        with pytest.raises(OSError, match="connection was lost"):
            list(loader)


def quit_debugger(index):
    raise bdb.BdbQuit if index == 2 else IndexError


def test_quitting_a_debugger_is_no_bad_sample():
    with pytest.raises(bdb.BdbQuit):
        load(SERIAL, gl.SimpleDataset(range(4)).transform(quit_debugger), 4, on_error="skip")


@pytest.mark.parametrize("dataset", [Faulty(), AsyncFaulty(), FaultyInBulk()])
def test_a_function_that_returns_none_is_an_error(any_way, dataset):
    with pytest.raises(
        TypeError, match=r"on_error returned None for dataset\[3\], .* OSError: cannot read 3; return gl"
    ):
        load(any_way, dataset, 4, on_error=print)


class Cancels(gl.Dataset):
    def __len__(self):
        return 8

    async def __getitem__(self, index):
        if index in (2, 5):
            raise asyncio.CancelledError
        return index


@pytest.mark.skipif(sys.version_info < (3, 11), reason="cannot tell who has cancelled")
def test_a_sample_that_awaits_something_cancelled_is_a_bad_sample(any_way):
    batches = load(any_way, Cancels(), 4, on_error="skip", concurrency=3)
    assert batches == [[0, 1, 3], [4, 6, 7]]


# -- arguments ---------------------------------------------------------------------------------------------------------


@mistakes(
    globals(),
    r"""
gl.DataLoader(Faulty(), 2, on_error=asyncio.sleep) -> on_error=...: must be an ordinary function...
gl.DataLoader(Faulty(), 2, on_error="ignore")
    -> on_error='ignore': must be 'raise', 'skip', 'replace' or a function...
gl.DataLoader(gl.IterableDataset(broken), 2, on_error="skip")
    -> on_error=...limit=0.01...: ... no length ...; pass a count...
gl.DataLoader(gl.IterableDataset(broken), 2, on_error=OnError("skip", 0.1))
    -> on_error=...limit=0.1...: ... pass a count...
gl.DataLoader(stream(), 2, concurrency=2) -> concurrency=2: an iterable dataset yields one sample after the other...
gl.DataLoader(stream(), 2, on_error=OnError("replace", 1)) -> on_error='replace': ... iterable ...; pass 'skip'
OnError("raise", 3) -> action='raise': then no error is counted; pass on_error='raise'
OnError("ignore") -> action='ignore': must be 'raise', 'skip', 'replace' or a function of error and sample
OnError("skip", -1) -> limit=-1: must be a count (an int >= 0), or a share (a float from 0 to 1)
OnError("skip", True) -> limit=True: must be a count (an int >= 0), or a share (a float from 0 to 1)
OnError("skip", 1.5) -> limit=1.5: a share must be from 0.0 to 1.0; pass an int for a count
""",
)
def test_wrong_arguments(mistake):
    mistake.check()


# -- many samples ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_many_bad_samples_change_nothing_between_executors_and_after_a_resume(policy):
    chooser = random.Random(policy)
    dataset = Faulty(SAMPLES, 100)
    arguments = {"shuffle": True, "on_error": OnError(policy, SAMPLES // 100)}
    serial = SERIAL.loader(dataset, 32, **arguments)
    places = sorted(chooser.sample(range(-(-SAMPLES // 32)), PLACES))
    batches, states = [], []
    for number, batch in enumerate(serial):
        if number in places:
            states.append(serial.state_dict())
        batches.append(batch.tolist())
    if policy == "skip":
        assert sorted(indices_of(batches)) == [index for index in range(SAMPLES) if index % 100 != 3]
    for way, workers in [(FORK, 1), (FORK, 2), (FORK, 4), (THREAD, 2)]:
        with way.loader(dataset, 32, num_workers=workers, **arguments) as loader:
            assert [batch.tolist() for batch in loader] == batches
            assert loader.stats().errors == SAMPLES // 100
            for place, state in list(zip(places, states, strict=True))[:: 1 if workers == 2 else 10]:
                loader.load_state_dict(state)
                found = [batch.tolist() for batch in loader]
                assert found == batches[place + 1 :]


class Sample:
    """A sample that can be referred to weakly."""


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_the_error_of_a_last_sample_keeps_no_sample_in_memory(way, policy):
    alive = weakref.WeakSet()

    def read(index):
        if index == 7:
            raise OSError("cannot read 7")
        alive.add(sample := Sample())
        return sample

    dataset = gl.SimpleDataset(range(8)).transform(read)
    gc.collect()
    gc.disable()
    try:
        sizes = [len(batch) for batch in way.loader(dataset, 8, on_error=OnError(policy, 1), batchify_fn=list)]
        assert sizes == [7 if policy == "skip" else 8]
        assert eventually(lambda: not alive)
    finally:
        gc.enable()


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["skip", "replace", negative, negative_or_skip])
@pytest.mark.parametrize("dataset", [Faulty(), FaultyInBulk(), Faulty(20, 20, bad=range(8))])
def test_the_statistics_count_the_samples_that_arrive(any_way, dataset, policy):
    check_statistics(any_way, dataset, policy, len(dataset.bad))


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_the_statistics_count_the_samples_of_an_iterable_dataset_that_arrive(any_way, last_batch):
    check_statistics(any_way, gl.IterableDataset(stream(), num_shards=3), "skip", None, last_batch=last_batch)


def check_statistics(way, dataset, policy, errors, **arguments):
    samples, found = 0, []
    with way.loader(dataset, 8, on_error=OnError(policy, 100), **arguments) as loader:
        iterator = iter(loader)
        for batch in iterator:
            samples += len(batch)
            found += iterator.last.errors
            assert iterator.last.samples == len(batch)
        stats = loader.stats()
    assert stats.samples == stats.epochs[0].samples == samples
    assert errors in (None, stats.errors)
    assert stats.failed == 0
    skipped = sum(bad.skipped for bad in found)
    if stats.errors == len(found):  # no batch was left out
        assert stats.skipped == skipped
    assert stats.skipped <= stats.errors
    assert f"raised an error ({stats.skipped:,} skipped" in str(stats) or not stats.skipped
    assert all("cannot read" in bad.error or "ValueError" in bad.error for bad in found)


def test_print_says_how_many_samples_were_skipped_or_replaced():
    def text(policy):
        with SERIAL.loader(Faulty(60), 6, on_error=policy) as loader, contextlib.suppress(OSError):
            list(loader)
        return str(loader.stats()).splitlines()[1:-1]

    assert text(OnError("skip", 6)) == ["6 samples raised an error (6 skipped)."]
    assert text(OnError("replace", 6)) == ["6 samples raised an error (6 replaced)."]
    assert text(OnError(negative_or_skip, 6)) == ["6 samples raised an error (1 skipped, 5 replaced)."]
    assert text("raise") == ["1 batch raised an error and did not arrive."]


def test_the_statistics_count_batches_that_raised_an_error(any_way):
    with any_way.loader(Faulty(20), 2) as loader:
        iterator, sizes = iter(loader), []
        while len(sizes) < 8:
            with contextlib.suppress(OSError):
                sizes.append(len(next(iterator)))
        stats = loader.stats()
    assert (stats.samples, stats.failed, stats.errors) == (16, 2, 0)
