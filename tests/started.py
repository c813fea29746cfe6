"""Datasets and functions for test_start_methods.py: new interpreters import this file, and nothing that takes long."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import warnings
from collections import namedtuple

import numpy as np
from samples import Numbered

import gluonloader as gl

Pair = namedtuple("Pair", ["x", "y"])


class Varied:
    """Samples of several types, with numbers of all generators that a loader seeds."""

    def __init__(self, size):
        self.size, self.held = size, np.random.default_rng(1)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {
            "pair": Pair(np.arange(4, dtype=np.int16) + index, float(index)),
            "list": [bytes([index]), str(index)],
            "empty": np.zeros((0, 3)),
            "random": (gl.get_rng().random(), np.random.random(), random.random(), self.held.random()),
        }


class Ragged:
    """A sample is an array of its own length."""

    lengths = (1, 300_000, 10, 700_000, 3)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return np.full(self.lengths[index], index, np.uint8)


def padded(samples):
    """A view of an array that lies in the memory of the batch, and an array that does not."""
    batch = gl.empty((len(samples), max(map(len, samples)) + 1), np.uint8)
    batch[:] = 99
    for row, sample in zip(batch, samples):
        row[: len(sample)] = sample
    return batch[:, :-1], np.arange(3)


class InBulk(Numbered):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Environment:
    """Samples are values of environment variables in the worker; None for one that is not set."""

    names = ("GLUONLOADER_TEST_NEW", "GLUONLOADER_TEST_GONE")

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return os.environ.get(self.names[index])


class Awaited(Numbered):
    async def __getitem__(self, index):
        return np.full(500, index, np.int32)


class Rows:
    """An iterable dataset; one sample kills its worker, once."""

    def __init__(self, flag):
        self.flag = flag

    def __iter__(self):
        for number in range(20):
            if number == 7 and first_time(self.flag):
                os.kill(os.getpid(), signal.SIGKILL)
            yield number


def first_time(flag):
    """Whether no process has called this with the same file before."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


# -- errors ------------------------------------------------------------------------------------------------------------


class TwoArguments(Exception):
    def __init__(self, code, number):
        super().__init__(f"{code} {number}")
        self.number = number


class OnlyInWorkers:
    def __reduce__(self):
        return only_in_workers, (os.getpid(),)


def only_in_workers(pid):
    if os.getpid() != pid:
        raise ValueError("not here")
    return 0


class Failing:
    """Most samples are errors, each in another way."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 1:
            raise KeyError("no one")
        if index == 2:
            raise TwoArguments("code", 5)
        if index == 3:
            raise type("Local", (Exception,), {})("a class that cannot be pickled")
        if index == 4:
            sys.exit("enough")
        if index == 5:
            return {"parts": (2, threading.Lock())}
        if index == 6:
            return OnlyInWorkers()
        return index


class SometimesBad:
    def __len__(self):
        return 30

    def __getitem__(self, index):
        if index % 10 == 3:
            raise ValueError(index)
        return index


def negative(error, index):
    return -index


class Deadly(Numbered):
    """Sample 7 kills its worker each time, or only the first time."""

    def __init__(self, flag=None):
        super().__init__(40)
        self.flag = flag

    def __getitem__(self, index):
        if index == 7 and (self.flag is None or first_time(self.flag)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Stuck(Numbered):
    """Sample 0 touches a file, and then never ends."""

    def __init__(self, begun):
        super().__init__()
        self.begun = begun

    def __getitem__(self, index):
        if index == 0:
            open(self.begun, "w").close()
            linger_for_ever()
        return index


def linger_for_ever():
    threading.Event().wait(3600)


# -- the start ---------------------------------------------------------------------------------------------------------


class Known:
    """A sample is what `worker_init_fn` knew about its worker, and what the dataset knows now."""

    at_start = None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        info = gl.get_worker_info()
        return self.at_start, [info.id, info.num_workers, info.epoch, info.payload, len(info.dataset)]


def remember(info):
    name = type(info.dataset).__name__
    Known.at_start = [info.id, info.num_workers, info.epoch, info.payload, info.seed, int(info), name]


def payload(loader_info, worker):
    return worker * 100 + loader_info.batch_size + len(loader_info.dataset) + loader_info.num_workers


def fail(worker):
    raise OSError(f"worker {worker} has no disk")


def use_up_descriptors(info):
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass


def hang_and_say_so(info):
    info.payload.touch()
    linger_for_ever()


class BadPickle(Numbered):
    def __reduce__(self):
        return fail_to_unpickle, ()


def fail_to_unpickle():
    raise LookupError("the file is gone")


class DiesUnpickling(Numbered):
    def __reduce__(self):
        return os._exit, (9,)


class Nested(Numbered):
    """Each sample is the batch of a loader inside of the worker, and the number of warnings about its threads."""

    def __getitem__(self, index):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with gl.DataLoader([1, 2, 3], 3, num_workers=2) as inner:
                (batch,) = inner
        return batch, sum("uses threads" in str(warning.message) for warning in caught), len(caught)
