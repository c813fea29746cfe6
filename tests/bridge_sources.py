"""Shared by the tests of bridges: sources, and a fixture that fails a test which leaves a thread running."""

import gc
import threading

import numpy as np
import pytest
from conftest import eventually


def threads():
    return [thread for thread in threading.enumerate() if thread.name.endswith("(worker)")]


@pytest.fixture(autouse=True)
def no_threads_are_left():
    assert eventually(lambda: not threads())
    yield
    gc.collect()
    assert eventually(lambda: not threads())


class Counted:
    """Yields numbers, and counts how many it has yielded in all."""

    def __init__(self, size=1000):
        self.size, self.read, self.iterations = size, 0, 0

    def __iter__(self):
        self.iterations += 1
        for number in range(self.size):
            self.read += 1
            yield number


def numbers():
    yield from range(5)


class Resetting:
    """An iterator with `reset`, like those of MXNet and DALI."""

    def __init__(self, size=5):
        self.size, self.at, self.resets = size, 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.size:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def reset(self):
        self.at, self.resets = 0, self.resets + 1


class Stateful:
    """Like loaders of torchdata: its state includes the random generator, and `iter` continues from it."""

    def __init__(self, size=6):
        self.size, self.at, self.rng = size, 0, np.random.default_rng(3)

    def __len__(self):
        return self.size

    def __iter__(self):
        while self.at < self.size:
            self.at += 1
            yield self.at - 1, self.rng.random()
        self.at = 0

    def state_dict(self):
        return {"at": np.int64(self.at), "rng": self.rng.bit_generator.state, "pair": [{"x": np.arange(3)}]}

    def load_state_dict(self, state):
        assert state["pair"][0]["x"].tolist() == [0, 1, 2]
        assert state["pair"][0]["x"].dtype == np.arange(3).dtype
        assert isinstance(state["at"], np.int64)
        self.at, self.rng.bit_generator.state = int(state["at"]), state["rng"]


class Spoiled:
    """Raises an error instead of every third batch; the iterator continues after it."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def reset(self):
        self.at = 0

    def __next__(self):
        if self.at == 8:
            raise StopIteration
        self.at += 1
        if self.at % 3 == 0:
            raise OSError(f"cannot read {self.at}")
        return self.at


def read_all(iterator):
    found = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except OSError as error:
            found.append(str(error))
