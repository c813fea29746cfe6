"""What the tests of bridges share: sources, and a fixture that finds threads left behind where it is imported."""

import gc
import threading

import numpy as np
import pytest
from conftest import eventually


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "gluonloader-bridge"]


@pytest.fixture(autouse=True)
def no_threads_are_left():
    assert eventually(lambda: not threads())
    yield
    gc.collect()
    assert eventually(lambda: not threads())


class Counted:
    """Gives numbers, and says how many it has given in its life."""

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
    """An iterator with reset, as MXNet's and DALI's."""

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
    """As torchdata's loaders: its state is where it stands, random numbers included; `iter` goes on there."""

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
        self.at, self.rng.bit_generator.state = state["at"], state["rng"]


class Spoiled:
    """Every third batch is an error; the iterator goes on after it."""

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
