"""`iterator.last` describes the batch that `next` returned last."""

import dataclasses
import random
import signal
import threading
import time

import numpy as np
import pytest
from conftest import SERIAL, THREAD
from interrupting import Alarm, SignalAt

from gluonloader import DataLoader, IterableDataset
from gluonloader.types import BatchInfo


class Slow:
    """Sample 0 is slow, and sample 9 raises."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 0:
            time.sleep(0.05)
        if index == 9:
            raise OSError("broken")
        return index


@pytest.mark.parametrize("in_order", [True, False])
def test_it_describes_each_batch_for_every_executor(way, in_order):
    with way.loader(Slow(), 4, in_order=in_order) as loader:
        for epoch in range(2):
            iterator, numbers, errors = iter(loader), [], 0
            assert iterator.last is None
            while True:
                before = iterator.last
                try:
                    batch = next(iterator).tolist()
                except OSError:
                    errors += 1
                    assert iterator.last == before
                    continue
                except StopIteration:
                    break
                last = iterator.last
                assert (last.epoch, last.indices) == (epoch, batch)
                assert last.indices == loader.indices(last.epoch, last.number)
                assert (last.worker is None) == (loader.stats().executor == "serial")
                assert last.worker is None or 0 <= last.worker < loader.num_workers
                assert last.made_s >= (0.05 if 0 in batch else 0)
                assert last.waited_s > 0
                assert (last.shard, last.chunk) == (None, None)
                numbers.append(last.number)
            assert iterator.last == last
            assert (sorted(numbers), errors) == ([0, 1, 3, 4, 5, 6, 7, 8, 9], 1)


def test_iterators_are_independent_and_the_description_is_frozen():
    loader = DataLoader(range(20), 4, True, seed=0)
    one, other = iter(loader), iter(loader)
    for _ in range(3):
        for iterator, epoch in ((one, 0), (other, 1)):
            batch = next(iterator).tolist()
            assert (iterator.last.epoch, iterator.last.indices) == (epoch, batch)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.last.epoch = 3
    assert isinstance(one.last, BatchInfo)
    one.close()
    assert one.last.number == 2


def test_each_thread_sees_its_own_batch():
    with THREAD.loader(range(400), 4) as loader:
        iterator, wrong, seen = iter(loader), [], []
        assert len(next(iterator)) == 4

        def read():
            for batch in iterator:
                if iterator.last.indices != batch.tolist():
                    wrong.append(batch)
                seen.append(iterator.last.number)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (wrong, sorted(seen)) == ([], list(range(1, 100)))
        assert iterator.last.number == 0


def in_another_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_thread_that_reads_nothing_sees_the_newest_batch():
    iterator = iter(DataLoader(range(8), 4))
    for number in range(2):
        in_another_thread(lambda: next(iterator))
        assert iterator.last.number == number


def test_a_new_thread_does_not_see_the_batch_of_a_thread_that_has_ended():
    iterator, seen = iter(DataLoader(range(12), 4)), []
    in_another_thread(lambda: next(iterator))
    next(iterator)
    in_another_thread(lambda: seen.append(iterator.last.number))
    assert seen == [1]


def test_shards_and_chunks_of_an_iterable_dataset(any_way):
    with any_way.loader(IterableDataset(lambda: iter(range(23)), num_shards=2), 4) as loader:
        iterator, found = iter(loader), []
        for batch in iterator:
            last = iterator.last
            found.append((last.number, last.shard, last.chunk, batch.tolist()))
            assert last.indices is None
        assert found == [
            (0, 0, 0, [0, 2, 4, 6]),
            (1, 1, 0, [1, 3, 5, 7]),
            (2, 0, 1, [8, 10, 12, 14]),
            (3, 1, 1, [9, 11, 13, 15]),
            (4, 0, 2, [16, 18, 20, 22]),
            (8, None, None, [17, 19, 21]),
        ]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.numpy_only
@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_after_an_interrupt_it_describes_the_batch_that_was_returned(way, alarms):
    chance = random.Random(0)
    with way.loader(np.arange(48), 4, True) as loader:
        for _ in range(30):
            read_with_an_interrupt(iter(loader), chance.randrange(300))


def read_with_an_interrupt(iterator, point):
    interrupted, returned = SignalAt(point, signal.SIGALRM), None
    while True:
        try:
            with interrupted:
                batch = next(iterator)
            returned = batch.tolist()
        except Alarm:
            interrupted = SignalAt(10**9, signal.SIGALRM)
        except StopIteration:
            return
        assert (None if iterator.last is None else iterator.last.indices) == returned, interrupted.where
