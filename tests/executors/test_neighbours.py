"""One batch fails; the batches before and after it are delivered, in this epoch and in the next."""

import contextlib
import multiprocessing
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, run_program, scarce_descriptors
from samples import MB, Numbered

from gluonloader.errors import BatchTimeout, SharedMemoryError

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only]


class OneLarge:
    """Samples of 1 MB; number 17 has `size` MB."""

    def __init__(self, size=80):
        self.size = size

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return np.full((self.size if index == 17 else 1) * MB, index, np.uint8)


def read(loader, without_descriptors=None):
    """The first items of the batches of one epoch, and the errors in their place.

    The batch with the number `without_descriptors` is asked for while this process can open no file.
    """
    iterator, found = iter(loader), []
    while True:
        scarce = scarce_descriptors(1, left=0) if len(found) == without_descriptors else contextlib.nullcontext()
        try:
            with scarce:
                found.append(int(next(iterator)[0, 0]))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


def check_only_fails(found, number, kind):
    assert isinstance(found[number], kind)
    assert [item for item in found if not isinstance(item, Exception)] == [i for i in range(len(found)) if i != number]


def test_a_batch_that_can_never_fit_under_the_limit_fails_alone(process_way):
    with process_way.loader(OneLarge(), 1, memory_limit="64MB") as loader:
        for _ in range(3):
            found = read(loader)
            check_only_fails(found, 17, SharedMemoryError)
            assert "memory_limit=67,108,864" in str(found[17])


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_without_processes_there_is_no_limit_to_fit_under(way):
    with way.loader(OneLarge(), 1, memory_limit="64MB") as loader:
        assert read(loader) == list(range(40))


class Growing:
    """Each sample is a little larger than those before it, so that slabs are mapped again and again."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return np.full((1 + index) * 200_000, index, np.uint8)


@pytest.mark.parametrize("number", [1, 4, 11])
def test_without_a_free_descriptor_at_most_one_batch_fails(number):
    """Before Python 3.13 each mapping needs a descriptor."""
    with FORK.loader(Growing(), 1) as loader:
        found = read(loader, number)
        errors = [item for item in found if isinstance(item, OSError)]
        assert len(errors) <= 1
        assert [item for item in found if item not in errors] == [
            index for index in range(40) if found[index] not in errors
        ]
        assert read(loader) == list(range(40))


class StuckBehind:
    """Sample 0 never ends, and each of the others takes a while; `made` counts them."""

    def __init__(self):
        self.release = threading.Event()
        self.made = multiprocessing.Value("i", 0)

    def __len__(self):
        return 24

    def __getitem__(self, index):
        self.release.wait(60 if index == 0 else 0.4)
        with self.made.get_lock():
            self.made.value += 1
        return np.full(3, index)


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_the_timeout_counts_from_the_call_of_next_whatever_arrives_meanwhile(way):
    dataset = StuckBehind()
    with way.loader(dataset, 1, prefetch=12, timeout=3) as loader:
        iterator = iter(loader)
        with pytest.raises(BatchTimeout, match=r"batch 0 of epoch 0 took more than timeout=3 seconds"):
            next(iterator)
        assert dataset.made.value < 11  # if each arrival restarted the clock, the error would come after all of them
        dataset.release.set()
        assert [int(batch[0, 0]) for batch in iterator] == list(range(1, 24))


@pytest.mark.parametrize("timeout", [3e6, 10**10, 1e300, float("inf")])
def test_a_timeout_may_be_very_long(any_way, timeout):
    with any_way.loader(Numbered(8), 2, timeout=timeout) as loader:
        assert len(list(loader)) == 4


# The parent has a temporary folder of multiprocessing, and its child starts a fork server.
CHILD_WITH_FORK_SERVER = """
import os
from multiprocessing import util
from pathlib import Path
from conftest import eventually
from gluonloader import DataLoader

folder = util.get_temp_dir()
read, write = os.pipe()
child = os.fork()
if not child:
    with DataLoader(range(4), 2, num_workers=1, start_method="forkserver") as loader:
        list(loader)
    os.write(write, util.get_temp_dir().encode())
    os._exit(0)
os.waitpid(child, 0)
of_the_child = os.read(read, 4096).decode()
print(eventually(lambda: not Path(of_the_child).exists()), Path(folder).exists())
"""


@pytest.mark.spawn
def test_the_fork_server_of_a_child_leaves_the_temporary_folder_of_the_parent():
    code = f"import sys\nsys.path[:0] = {[str(Path(__file__).parents[1]), *sys.path]!r}\n{CHILD_WITH_FORK_SERVER}"
    done = run_program(code)
    assert (done.stdout, done.stderr) == ("True True\n", "")
