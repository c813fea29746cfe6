"""Samplers that change during an epoch, and what `worker_init_fn` and datasets know about their worker."""

import threading

import pytest
from conftest import FORK, SERIAL, THREAD, crew
from rank_models import Restarting

from gluonloader import BatchSampler, DataLoader, IterableDataset, MixtureSampler, SimpleDataset, WeightedSampler
from gluonloader.errors import LoaderClosed
from gluonloader.options import Processes

# -- live samplers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_closing_ends_the_loop_of_a_thread_that_is_in_the_sampler(way):
    inside, closed, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def __iter__(self):
            for index in range(100):
                if index == 6:
                    inside.set()
                    closed.wait(20)
                yield [index]

    def run():
        for _ in iterator:
            pass
        ended.set()

    with way.loader(range(100), batch_sampler=Slow()) as loader:
        iterator = iter(loader)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert inside.wait(20)
        iterator.close()
        closed.set()
        assert ended.wait(20)
        thread.join()


def test_new_weights_take_effect_with_the_next_batch_after_a_flush(any_way):
    sampler = WeightedSampler([1, 1, 0, 0], num_samples=400, seed=0)
    with any_way.loader([0, 1, 2, 3], 10, sampler=sampler, prefetch=8) as loader:
        iterator = iter(loader)
        seen = []
        for turn in range(4):
            iterator.sampler.weights = [1, 1, 0, 0] if turn % 2 == 0 else [0, 0, 1, 1]
            iterator.flush()
            for _ in range(10):
                batch = next(iterator)
                assert set(batch.tolist()) <= ({0, 1} if turn % 2 == 0 else {2, 3})
                seen += batch.tolist()
        assert list(iterator) == []
    assert len(seen) == 400


def test_a_flush_after_the_last_batch_also_discards_what_auto_reload_has_drawn(any_way):
    sampler = WeightedSampler([1, 1, 0, 0], num_samples=4, seed=0)
    with any_way.loader(range(4), 2, sampler=sampler, auto_reload=True) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        iterator.sampler.weights = [0, 0, 1, 1]
        iterator.flush()
        assert {number for batch in loader for number in batch.tolist()} == {2, 3}


def test_the_epoch_after_a_flush_is_the_same_with_every_executor(any_way):
    def epoch_after_a_flush(way):
        mixture = MixtureSampler([8, 8], weights=[0.5, 0.5], num_samples=20, seed=0)
        with way.loader(range(16), 2, sampler=mixture) as loader:
            iterator = iter(loader)
            next(iterator)
            iterator.sampler.weights = [0.9, 0.1]
            iterator.flush()
            return [batch.tolist() for batch in loader]

    assert epoch_after_a_flush(any_way) == epoch_after_a_flush(SERIAL)


class Continuing:
    """A sampler whose next pass continues where the last one has stopped."""

    def __init__(self, length):
        self.length, self.place = length, 0

    def __len__(self):
        return self.length

    def __iter__(self):
        while self.place < self.length:
            self.place += 1
            yield self.place - 1
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


@pytest.mark.parametrize("sampler", [lambda: range(8), lambda: Continuing(8)], ids=["range", "stateful"])
def test_a_new_batch_size_applies_from_the_next_epoch_on(any_way, sampler):
    batches = BatchSampler(sampler(), 3)
    with any_way.loader(range(8), batch_sampler=batches) as loader:
        iterator = iter(loader)
        epochs = [[next(iterator).tolist()]]
        batches.batch_size, batches.last_batch = 5, "discard"
        iterator.flush()
        assert iterator.state_dict()["offset"] == 3
        epochs[0] += [batch.tolist() for batch in iterator]
        epochs.append([batch.tolist() for batch in loader])
    assert epochs == [[[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 1, 2, 3, 4]]]


def test_a_flush_after_the_last_batch_has_nothing_to_discard_and_a_closed_epoch_cannot_be_flushed(any_way):
    with any_way.loader(range(4), 2, last_batch="rollover") as loader:
        seen = []
        for _ in range(2):
            ended = iter(loader)
            for batch in ended:
                seen += batch.tolist()
                ended.flush()
            ended.flush()
            assert list(ended) == []
        assert seen == [0, 1, 2, 3] * 2
        closed = iter(loader)
        closed.close()
        with pytest.raises(LoaderClosed):
            closed.flush()
        assert list(closed) == []


def test_a_flush_after_the_last_batch_has_failed_leaves_the_epoch_finished(any_way):
    data = SimpleDataset(range(5)).transform(lambda number: 1 // (number != 3))
    with any_way.loader(data, 2, last_batch="rollover") as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ZeroDivisionError):
            next(iterator)
        iterator.flush()
        iterator.close()
        assert loader.state_dict()["epoch"] == 1
        assert loader.upcoming(3) == [4, 0, 1]
        assert next(iter(loader)).tolist() == [1, 1]
        assert loader.state_dict()["carried"] == [4]


def test_a_flush_of_an_iterable_continues_after_the_last_delivered_batch(any_way):
    with any_way.loader(IterableDataset(lambda: iter(range(40)), num_shards=2), 4) as loader:
        expected = [batch.tolist() for batch in loader]
        iterator, seen = iter(loader), []
        for _ in range(10):
            iterator.flush()
            seen.append(next(iterator).tolist())
        assert iterator.sampler is None
    assert seen == expected


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"batch_size": 2, "sampler": Restarting(range(4))}, "an earlier index"),
        ({"batch_sampler": Restarting([[0, 1], [2, 3]])}, "the last delivered batch"),
    ],
    ids=["sampler", "batch sampler"],
)
def test_a_flush_of_a_sampler_that_cannot_go_back_raises_and_changes_nothing(arguments, place):
    iterator = iter(DataLoader(range(4), **arguments))
    with pytest.raises(TypeError, match=f"a Restarting cannot return to {place}; add state_dict"):
        iterator.flush()
    assert [batch.tolist() for batch in iterator] == [[0, 1], [2, 3]]


@pytest.mark.filterwarnings("ignore:.* ranks divide its order")
@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 2, "sampler": Continuing(8)}, {"batch_sampler": Restarting([[0, 1], [2, 3]] * 2)}],
    ids=["sampler", "batch sampler"],
)
def test_a_flush_of_a_users_sampler_that_ranks_divide_names_this_sampler(arguments):
    iterator = iter(DataLoader(range(8), ranks=(1, 2), batchify_fn=list, **arguments))
    first = next(iterator)
    with pytest.raises(TypeError, match="a (Continuing|Restarting) whose order several ranks divide cannot return"):
        iterator.flush()
    assert [first, *iterator] == ([[2, 3]] * 2 if "batch_sampler" in arguments else [[1, 3], [5, 7]])


def test_a_flush_of_a_list_of_batches_draws_the_next_one_again():
    batches = [[0, 1], [2, 3], [1, 0]]
    iterator = iter(DataLoader(range(4), batch_sampler=batches))
    next(iterator)
    batches[1] = [3, 3]
    iterator.flush()
    assert [batch.tolist() for batch in iterator] == [[3, 3], [1, 0]]


# -- what workers know ---------------------------------------------------------------------------------------------


def test_a_worker_info_can_be_used_as_a_plain_number():
    numbers = []
    list(DataLoader([1], 1, worker_init_fn=lambda worker: numbers.append([worker + 5, worker == 0, f"{worker:d}"])))
    assert numbers == [[5, True, "0"]]


def test_at_most_so_many_batches_wait_at_a_worker():
    with FORK.loader(range(40), 2, prefetch=16, executor=Processes(max_per_worker=1)) as loader:
        iterator = iter(loader)
        attempts = [len(lane.attempts) for lane in crew(loader).lanes.values()]
        assert max(attempts) <= 1
        assert [batch.tolist() for batch in iterator] == [[i, i + 1] for i in range(0, 40, 2)]
    with pytest.raises(ValueError, match="max_per_worker=0"):
        Processes(max_per_worker=0)
