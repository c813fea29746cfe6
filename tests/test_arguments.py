"""Wrong arguments fail in the constructor, with the argument, its value and what would be right (P9)."""

from __future__ import annotations

import multiprocessing
import re

import numpy as np
import pytest

import gluonloader as gl

DATA = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "batch_size must be given"),
        ({"batch_size": 0}, "batch_size=0: give the number of samples in a batch, an int >= 1"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 1, "last_batch": "drop"}, "last_batch='drop': give 'keep', 'discard' or 'rollover'"),
        ({"batch_size": 1, "shuffle": "yes"}, "shuffle='yes': give True or False"),
        ({"batch_size": 1, "shuffle": True, "sampler": [1]}, "shuffle and sampler both"),
        ({"batch_size": 1, "sampler": 3}, "sampler=3: give an iterable of indices"),
        ({"batch_size": 1, "sampler": iter([0, 1])}, "it can be iterated only once"),
        ({"batch_size": 1, "batch_sampler": [[0]]}, "batch_sampler replaces batch_size"),
        ({"batch_sampler": 7}, "batch_sampler=7: give an iterable of lists of indices"),
        ({"batch_sampler": iter([[0]])}, "it can be iterated only once"),
        ({"batch_size": 1, "batchify_fn": 3}, "batchify_fn=3: give a function, or None"),
        ({"batch_size": 1, "worker_init_fn": "f"}, "worker_init_fn='f': give a function, or None"),
        ({"batch_size": 1, "num_workers": -1}, "num_workers=-1: give an int >= 0"),
        ({"batch_size": 1, "num_workers": 1.5}, "num_workers=1.5: give an int >= 0"),
        ({"batch_size": 1, "pin_memory": "yes"}, "pin_memory='yes': give True or False"),
        ({"batch_size": 1, "pin_device_id": -1}, "pin_device_id=-1: give an int >= 0"),
        (
            {"batch_size": 1, "pin_memory": True, "output": "numpy"},
            "pin_memory=True: output='numpy' has no page-locked memory; leave it False",
        ),
        ({"batch_size": 1, "prefetch": -2}, "prefetch=-2: give an int >= 0"),
        ({"batch_size": 1, "timeout": 0}, "timeout=0: give seconds > 0, or None"),
        ({"batch_size": 1, "timeout": "5"}, "timeout='5': give seconds > 0, or None"),
        ({"batch_size": 1, "executor": "gpu"}, "executor='gpu': give 'serial', 'thread' or 'process'"),
        ({"batch_size": 1, "executor": "serial", "num_workers": 2}, "num_workers=2: executor='serial' has none"),
        ({"batch_size": 1, "executor": "process"}, "num_workers=0: executor='process' needs at least 1"),
        ({"batch_size": 1, "executor": "process", "num_workers": 1, "thread_pool": True}, "thread_pool=True"),
        ({"batch_size": 1, "seed": "a"}, "seed='a': give an int"),
        ({"batch_size": 1, "seed": 1.5}, "seed=1.5: give an int"),
        ({"batch_size": 1, "start_method": "clone", "num_workers": 1}, "start_method='clone': give one of"),
        ({"batch_size": 1, "start_method": "fork"}, "executor='serial' starts no processes; leave it out"),
        ({"batch_size": 1, "max_retries": -1}, "max_retries=-1: give an int >= 0"),
        ({"batch_size": 1, "memory_limit": "many"}, "memory_limit='many': give bytes"),
        ({"batch_size": 1, "memory_limit": 1000}, "memory_limit=1000: give bytes, at least 1,048,576"),
        ({"batch_size": 1, "memory_limit": 1.5}, "memory_limit=1.5: give bytes"),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)),
)
def test_a_wrong_argument_is_named_with_its_value_and_what_is_right(arguments, said):
    before = set(multiprocessing.active_children())
    with pytest.raises(ValueError) as caught:
        gl.DataLoader(DATA, **arguments)
    assert said in str(caught.value)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (iter(DATA), "dataset=.*can be iterated only once; give the function that makes it"),
        (5, "dataset: .*has no __len__"),
        (list, "dataset: .*is a class"),
    ],
)
def test_what_is_no_dataset_is_refused(dataset, said):
    with pytest.raises(ValueError, match=said):
        gl.DataLoader(dataset, 1)


def test_numpy_numbers_are_numbers():
    arguments = {"num_workers": np.int64(0), "shuffle": np.bool_(True), "seed": np.int32(3), "prefetch": np.uint8(2)}
    with gl.DataLoader(DATA, np.int64(2), **arguments) as loader:
        loader.set_epoch(np.int64(2))
        assert sorted(np.concatenate(list(loader)).tolist()) == DATA


def test_gluon_order_of_the_positional_arguments():
    loader = gl.DataLoader(DATA, 2, False, None, "discard", None, None, 0, False, 0, None, False, 120, False)
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError):
        gl.DataLoader(DATA, 2, False, None, "discard", None, None, 0, False, 0, None, False, 120, False, "serial")


@pytest.mark.parametrize("limit", [1 << 21, "2MB", "2 MiB", "2m", "0.002GB", "2048K"])
def test_memory_limits_are_read(limit):
    with gl.DataLoader(DATA, 5, num_workers=1, memory_limit=limit) as loader:
        assert next(iter(loader)).tolist() == DATA


def test_the_start_method_follows_the_program_s_own_choice(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")
    with pytest.raises(gl.TransportError, match="start_method='spawn'"):
        gl.DataLoader([lambda: 0], 1, num_workers=1)


def test_a_batch_sampler_that_gives_no_lists_is_an_error_that_says_so():
    with gl.DataLoader(DATA, batch_sampler=[[0], 1]) as loader, pytest.raises(ValueError, match="lists of indices"):
        list(loader)


def test_a_loader_has_a_repr():
    with gl.DataLoader(DATA, 1, num_workers=1) as loader:
        assert repr(loader) == "<DataLoader of list, process, 1 workers>"


def test_set_epoch_reaches_a_sampler_of_the_user_s():
    class Sampler(gl.SequentialSampler):
        def set_epoch(self, epoch):
            self.epoch = epoch

    sampler = Sampler(5)
    with gl.DataLoader(DATA, 2, sampler=sampler) as loader:
        loader.set_epoch(4)
        assert sampler.epoch == 4
        with pytest.raises(ValueError, match="epoch=-1"):
            loader.set_epoch(-1)


def test_seeds_come_from_numpy_where_none_is_given():
    def order():
        np.random.seed(7)
        with gl.DataLoader(list(range(50)), 50, shuffle=True) as loader:
            return next(iter(loader)).tolist()

    assert order() == order()
