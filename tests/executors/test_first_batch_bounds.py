"""What the first batch of an epoch may cost: memory, records on a lane, workers."""

import gc
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, THREAD, eventually
from test_first_batch import SIZE, Deadly, Plain, however_quick, read_log  # noqa: F401

import gluonloader as gl
from gluonloader.executors.base import Inbox, Made
from gluonloader.executors.first import with_first_batch
from gluonloader.frameworks import Lent
from gluonloader.loading.stats import Tally
from gluonloader.work.task import Job, Part, Samples, Task

pytestmark = pytest.mark.usefixtures("no_leaks")


class Watched(Plain):
    """Says which of its samples are alive."""

    def __init__(self):
        super().__init__()
        self.samples = {}

    def sample(self, index):
        array = np.full(3, index)
        self.samples[index] = weakref.ref(array)
        return array


def test_threads_let_go_of_the_samples_of_a_first_batch():
    dataset = Watched()
    with THREAD.loader(dataset, SIZE, prefetch=1) as loader:
        iterator = iter(loader)
        assert next(iterator)[:, 0].tolist() == list(range(SIZE))
        assert eventually(lambda: all(dataset.samples[index]() is None for index in range(SIZE)))
        assert len(list(iterator)) == 4


def loans():
    """How many batches, or parts of them, somebody looks into."""
    gc.collect()
    return sum(isinstance(thing, Lent) for thing in gc.get_objects())


def test_parts_of_a_first_batch_leave_their_slabs(tmp_path):
    before = loans()
    with FORK.loader(Plain(tmp_path), SIZE) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        assert loans() == before + 1
        del batch
        assert loans() == before
        assert len(list(iterator)) == 4
    assert set(read_log(tmp_path).values()) == {1}, "it was read in parts"


class Collects:
    """An executor that does nothing."""

    def __init__(self):
        self.tasks = []

    def submit(self, task, inbox):
        self.tasks.append(task)


@pytest.mark.parametrize("workers", [2, 16, 17, 300])
def test_there_are_not_too_many_parts_for_a_lane(workers):
    executor = Collects()
    first = with_first_batch(executor, Job(Plain(), list, None, workers, 0), workers, Tally())
    inbox, keys = Inbox(), list(range(1000))
    for batch in range(workers + 5):
        first.submit(Task(0, batch, 0, keys), inbox)
    parts = [task.work for task in executor.tasks if isinstance(task.work, Part)]
    assert len(parts) == min(workers, 16)
    assert sum([list(part.keys) for part in parts], []) == keys
    assert len(executor.tasks) - len(parts) == workers - 1, "one worker stays idle"


class Answers(Collects):
    """An executor that makes a list of arrays, one task after the other; notes how many samples of parts are alive."""

    def __init__(self):
        super().__init__()
        self.read, self.alive = [], []

    def submit(self, task, inbox):
        super().submit(task, inbox)
        self.alive.append(sum(sample() is not None for sample in self.read))

    def wait(self, inbox, timeout):
        task = self.tasks.pop(0)
        if isinstance(task.work, Samples):
            return Made(task, np.stack(task.work.samples))
        samples = [np.full(1, index) for index in task.indices]
        self.read += map(weakref.ref, samples if isinstance(task.work, Part) else ())
        return Made(task, samples)


def test_batches_behind_the_first_one_find_room_where_its_parts_lay():
    executor = Answers()
    first = with_first_batch(executor, Job(Plain(), list, None, 2, 0), 2, Tally())
    inbox, tasks = Inbox(), [Task(0, number, 0, [2 * number, 2 * number + 1, 0, 0]) for number in range(4)]
    for task in tasks:
        first.submit(task, inbox)
    assert [type(task.work) for task in executor.tasks] == [Part, Part, list]
    assert first.wait(inbox, None).task is tasks[1]
    assert [type(task.work) for task in executor.tasks] == [Samples], "the third and fourth batch are held back"
    outcome = first.wait(inbox, None)
    assert outcome.task is tasks[0]
    assert outcome.take()[:, 0].tolist() == [0, 1, 0, 0]
    assert executor.tasks == tasks[2:]
    assert executor.alive == [0, 0, 0, 4, 0, 0]


@pytest.mark.parametrize("victim", [0, 6])
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_a_part_kills_one_worker_only(victim, max_retries, tmp_path):
    with FORK.loader(Deadly(tmp_path, victim, 99), SIZE, max_retries=max_retries) as loader:
        iterator = iter(loader)
        with pytest.raises(gl.WorkerDied, match=rf"{max_retries + 1} workers? died"):
            next(iterator)
        assert [batch[0, 0] for batch in iterator] == [8, 16, 24, 32]
    assert read_log(tmp_path)[victim] == 1 + max_retries + 1


def in_a_slab(array):
    """Whether an array lies in shared memory of ours."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= address < end:
            return "memfd:gluonloader" in line
    return False


@dataclass
class Places:
    """When it is rebuilt, a sample notes where its array lies."""

    array: object
    was_in_a_slab: object = -1

    def __setstate__(self, state):
        self.__dict__.update(state)
        if isinstance(self.was_in_a_slab, int):
            self.was_in_a_slab = int(in_a_slab(self.array))


class Rebuilt(Plain):
    def sample(self, index):
        return Places(np.full(1000, index))


def gathered(samples):
    return Places(np.stack([sample.array for sample in samples]), np.array([s.was_in_a_slab for s in samples]))


@pytest.mark.parametrize(("batchify", "in_slab"), [(None, 1), (gathered, 0)])
def test_parts_are_copied_only_for_a_batchify_that_may_keep_them(batchify, in_slab):
    with FORK.loader(Rebuilt(), SIZE, batchify_fn=batchify) as loader:
        for _ in range(2):
            first, *others = loader
            assert first.array[:, 0].tolist() == list(range(SIZE))
            assert first.was_in_a_slab.tolist() == [in_slab] * SIZE
            assert all((batch.was_in_a_slab == -1).all() for batch in others)
