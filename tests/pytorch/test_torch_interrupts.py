"""A caught Ctrl-C loses no batch of `gluonloader.torch.DataLoader`, at whatever point of the library it arrives."""

import os
import random
import signal

import numpy as np
import pytest
from conftest import load_or_skip
from interrupting import SignalAt

torch = pytest.importorskip("torch")
load_or_skip("torch")

from gluonloader.torch import DataLoader  # noqa: E402

INTERRUPTS = int(os.environ.get("GLUONLOADER_INTERRUPTS", "60"))

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def bounded():
    """No time limit, unlike in the tests beside this file: `nox -s soak` interrupts 1000 times."""


class Samples(torch.utils.data.Dataset):
    """Each sample has 16 kB, filled with its index."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return np.full(2000, index)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return map(Samples().__getitem__, range(48))


WAYS = [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}]


@pytest.mark.parametrize("dataset", [Samples(), Stream()], ids=["map", "iterable"])
@pytest.mark.parametrize("way", WAYS, ids=["serial", "workers", "persistent workers"])
def test_an_interrupt_at_any_point_loses_nothing(dataset, way):
    chance = random.Random(0)
    with DataLoader(dataset, batch_size=4, **way) as loader:
        for _ in range(INTERRUPTS):
            iterator, numbers, interrupts = iter(loader), [], 0
            point = chance.choice([chance.randrange(30), chance.randrange(600)])
            with SignalAt(point, signal.SIGINT) as signalled:
                while True:
                    try:
                        for batch in iterator:
                            numbers.append(int(batch[0, 0]))
                        break
                    except KeyboardInterrupt:
                        interrupts += 1
            expected = [
                number for number in range(0, 48, 4) if number in numbers
            ]  # one may be lost while it is returned
            assert numbers == expected, signalled.where
            assert len(numbers) >= 12 - interrupts, signalled.where


@pytest.mark.parametrize("way", WAYS, ids=["serial", "workers", "persistent workers"])
def test_an_interrupted_start_can_be_repeated(way):
    with DataLoader(Samples(), batch_size=4, **way) as loader:
        for point in range(0, 400, max(1, 400 // INTERRUPTS)):
            try:
                with SignalAt(point, signal.SIGINT) as signalled:
                    iter(loader)
            except KeyboardInterrupt:
                pass
            assert [int(batch[0, 0]) for batch in loader] == list(range(0, 48, 4)), signalled.where
