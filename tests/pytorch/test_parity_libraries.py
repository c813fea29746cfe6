"""What other libraries do with torch's loader: subclasses, replaced parts, attributes of iterators.

Each class here has the pattern of a library's class.
"""

import contextlib
import pickle
import signal

import pytest
from interrupting import Alarm, SignalAt

import gluonloader
from gluonloader.options import OnError

from .sides import (
    OURS,
    THEIRS,
    Keys,
    Numbers,
    compared,
    continued,
    epoch,
    epochs,
    facts,
    left_after,
    lists,
    same,
    seed_all,
    shown,
    torch,
)  # fmt: skip

data = torch.utils.data
torchs = torch.utils.data.dataloader


class Repeated:
    """A batch sampler without end and without a length."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


def infinite(L):
    """Ultralytics: workers stay for all epochs, since the batch sampler never ends."""

    class Infinite(L):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler.sampler)

        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

        def _get_iterator(self):
            return super().__iter__() if self.num_workers < 0 else super()._get_iterator()

    return Infinite


@compared(state=False)
def test_a_loader_without_end(L, workers):
    loader = infinite(L)(Numbers(), 4, shuffle=True, num_workers=workers)
    return epochs(loader, 3), len(loader)


@compared
def test_an_iter_that_calls_get_iterator(L, workers):
    class Direct(L):
        def __iter__(self):
            return self._get_iterator()

    return epochs(Direct(Numbers(), 4, shuffle=True, num_workers=workers))


class Doubling:
    """An iterator of a library around torch's."""

    def __init__(self, inner):
        self.inner, self.resets = inner, 0

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.inner)[0] * 2

    def _reset(self, loader, first_iter=False):
        self.resets += 1
        self.inner._reset(loader, first_iter)


def doubled(L):
    class Doubled(L):
        calls = 0

        def _get_iterator(self):
            self.calls += 1
            return Doubling(super()._get_iterator())

    return Doubled


def of_torch(L):
    """LitData: a loader that makes torch's own iterators."""

    class OfTorch(L):
        def _get_iterator(self):
            kind = torchs._MultiProcessingDataLoaderIter if self.num_workers else torchs._SingleProcessDataLoaderIter
            return kind(self)

    return OfTorch


@pytest.mark.parametrize("derive", [doubled, of_torch])
@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])
@compared
def test_get_iterator_is_overridden(L, derive, num_workers, persistent):
    loader = derive(L)(Numbers(), 4, shuffle=True, num_workers=num_workers, persistent_workers=persistent)
    return epochs(loader, 3), getattr(loader, "calls", None), getattr(loader._iterator, "resets", None)


def test_the_position_of_an_iterator_of_another_library_is_unknown():
    loader = of_torch(OURS)(Numbers(), 4)
    state = loader.state_dict()
    next(iter(loader))
    with pytest.raises(RuntimeError, match="OfTorch.state_dict: the position is unknown"):
        loader.state_dict()
    loader.load_state_dict(state)
    assert loader.state_dict() == state


@compared
def test_the_class_and_the_attributes_of_an_iterator(L, workers):
    loader = L(Numbers(), 4, num_workers=workers)
    iterator = iter(loader)
    counts = [iterator._num_yielded for _ in iterator]
    kinds = (torchs._SingleProcessDataLoaderIter, torchs._MultiProcessingDataLoaderIter, torchs._BaseDataLoaderIter)
    return counts, [isinstance(iterator, kind) for kind in kinds], loader._iterator, iterator._num_workers


def test_workers_of_an_iterator_are_processes_that_can_be_ended():
    def pipeline(L):
        iterator = iter(L(Numbers(), 2, num_workers=2))
        next(iterator)
        workers = list(iterator._workers)
        running = [worker.is_alive() for worker in workers]
        for worker in workers:
            worker.terminate()
        iterator._shutdown_workers()
        for worker in workers:
            worker.join(10)
        return running, hasattr(iter(L(Numbers())), "_workers")

    assert pipeline(OURS) == ([True, True], False)
    with contextlib.suppress(RuntimeError):  # "is killed by signal", if torch's handler of SIGCHLD runs too early
        assert pipeline(THEIRS) == ([True, True], False)


@compared
def test_persistent_workers_are_ended_through_the_loader(L):
    """As in mmengine and Lightning, which shut down what is in `loader._iterator`."""

    class Loader(L):
        def shut_down(self):
            self._iterator._shutdown_workers()
            self._iterator = None

    loader = Loader(Numbers(), 4, num_workers=1, persistent_workers=True)
    before, first = loader._iterator, epoch(loader)
    assert isinstance(loader._iterator, torchs._MultiProcessingDataLoaderIter)
    (worker,) = loader._iterator._workers
    loader.shut_down()
    worker.join(10)
    assert not worker.is_alive()
    return before, first, epoch(loader)


def test_an_iterator_that_was_left_does_not_stay_in_the_loader():
    loader = OURS(range(40), 2, num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    left = loader._iterator
    assert lists(loader) == [[i, i + 1] for i in range(0, 40, 2)]
    assert loader._iterator is not left
    assert next(left).tolist() == [2, 3]  # iterators are independent


class Saveable:
    """SpeechBrain: saves how many batches an iterator has yielded, and skips them after a resume."""

    skip = 0

    def __iter__(self):
        self.iterator = super().__iter__()
        return self.iterator


@pytest.fixture
def saveable(monkeypatch):
    """Makes loaders whose first epoch lacks 2 batches: SpeechBrain changes the constructor of torch's iterators."""
    original = torchs._BaseDataLoaderIter.__init__

    def changed(self, loader, *args, **kwargs):
        original(self, loader, *args, **kwargs)
        for number in range(getattr(loader, "skip", 0)):
            next(self._sampler_iter)
            self._num_yielded = number + 1
        if hasattr(loader, "skip"):
            loader.skip = 0

    def make(L, **options):
        loader = type("SaveableLoader", (Saveable, L), {})(Numbers(), 2, **options)
        loader.skip = 2
        return loader

    monkeypatch.setattr(torchs._BaseDataLoaderIter, "__init__", changed)
    return make


def skipped(loader):
    return epoch(loader), loader.iterator._num_yielded, loader.skip, epoch(loader)


def test_another_library_skips_batches(saveable):
    """With torch and workers, SpeechBrain also has to change `_reset`, which would draw the order again."""
    expected = same(lambda L: skipped(saveable(L, shuffle=True)))
    assert (len(expected[1][0][1]), expected[1][1]) == (4, 6)
    seed_all()
    assert facts(skipped(saveable(OURS, shuffle=True, num_workers=2))) == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_after_batches_that_another_library_has_skipped_loses_nothing(saveable, alarms):
    loader = saveable(OURS)
    expected = lists(loader)
    for point in range(0, 200, 3):
        loader.skip, found = 2, []
        iterator = iter(loader)
        with SignalAt(point, signal.SIGALRM) as signalled:
            while len(found) < len(expected):
                with contextlib.suppress(Alarm):
                    found.append(shown(next(iterator)))
        assert found == expected, signalled.where


def test_a_state_of_a_pass_that_another_library_has_shortened_is_refused(saveable):
    with pytest.raises(RuntimeError, match="another library has skipped the first 2 batches"):
        left_after(saveable(OURS), 1)


class Names:
    """Names that our loader might use for itself."""

    _passes = replay = "mine"

    def executor(self):
        return "mine"

    stats = indices = trace = executor

    @property
    def memory_limit(self):
        return "mine"


def test_a_subclass_uses_any_names(workers):
    class Loader(Names, OURS):
        def __init__(self, *args, **kwargs):
            self.snapshot_every_n_steps = "mine"
            super().__init__(*args, **kwargs)

    options = {"executor": "auto", "memory_limit": "64MB", "on_error": OnError("skip", 1)}
    loader = Loader(range(4), 2, num_workers=workers, snapshot_every_n_steps=5, **options)
    assert lists(loader) == [[0, 1], [2, 3]]
    assert {loader.executor(), loader.stats(), loader.indices(), loader.trace()} == {"mine"}
    assert {loader._passes, loader.replay, loader.memory_limit} == {"mine"}
    assert loader.snapshot_every_n_steps == "mine"
    assert len(epoch(pickle.loads(pickle.dumps(OURS(range(4), 2, executor="auto"))))) == 2


def test_arguments_are_attributes_from_which_trainers_make_the_loader_again():
    ours = {"executor": "auto", "memory_limit": "64MB", "concurrency": 2, "on_error": OnError("skip", 0.5)}
    ours["snapshot_every_n_steps"] = 5
    loader = OURS(range(4), **ours)
    assert ours.items() <= vars(loader).items()


class Drawing(data.Sampler):
    """Lhotse: a batch sampler that is its own iterator, without a length, with a checkpoint of its own."""

    def __init__(self):
        self.position, self.loaded, self.epoch = 0, False, 0

    def __iter__(self):
        if not self.loaded:
            self.position = 0
        self.loaded = False
        return self

    def __next__(self):
        if self.position == 8:
            self.epoch += 1
            raise StopIteration
        self.position += 1
        return [self.position, self.epoch]

    def state_dict(self):
        return {"position": self.position, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.position, self.epoch, self.loaded = state["position"], state["epoch"], True


def drawing(L, sampler, num_workers=0):
    return L(Keys(), batch_size=None, sampler=sampler, num_workers=num_workers)


@pytest.mark.parametrize("stop", [1, 5, 8])
@compared
def test_a_checkpoint_of_a_sampler_is_exact_without_workers(L, stop):
    sampler = Drawing()
    loader = drawing(L, sampler)
    for _ in range(2):
        for number, _batch in enumerate(loader, 1):
            if number == stop:
                state = sampler.state_dict()
    again = Drawing()
    again.load_state_dict(state)
    rest = epochs(drawing(L, again))
    assert len(rest[0]) == 8 - stop
    return state, rest


@pytest.mark.parametrize("stop", [1, 5, 8])
def test_a_loaded_state_of_a_sampler_that_is_its_own_iterator(stop, workers):
    """The state of the loader contains that of the sampler, also if workers have drawn ahead of it."""
    loader, again = (drawing(OURS, Drawing(), workers) for _ in range(2))
    state, rest = left_after(loader, stop)
    assert continued(again, state) == rest
    assert stop == 8 or lists(again) == lists(loader)


class OwnIterator(data.IterableDataset):
    """LitData: `iter` starts again, and returns the dataset. Its methods about states need more arguments."""

    def __iter__(self):
        self.position = 0
        return self

    def __next__(self):
        if self.position == 7:
            raise StopIteration
        self.position += 1
        return self.position

    def state_dict(self, samples, num_workers):
        raise AssertionError

    def load_state_dict(self, state, strict):
        raise AssertionError


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 3])
@compared
def test_a_dataset_that_starts_again_and_returns_itself(L, num_workers, batch_size):
    return epochs(L(OwnIterator(), batch_size, num_workers=num_workers))


class Stateful(OwnIterator):
    """torchdata: the dataset is its own iterator, and its state is that of the iterator."""

    def state_dict(self):
        return {"nested": {"position": self.position}}

    def load_state_dict(self, state):
        self.position = state["nested"]["position"]


@pytest.mark.parametrize("stop", [0, 1, 2, 3])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_state_of_a_dataset_that_is_its_own_iterator(stop, batch_size, workers):
    state, rest = left_after(OURS(Stateful(), batch_size, num_workers=workers), stop)
    assert continued(OURS(Stateful(), batch_size, num_workers=workers), state) == rest


class ArgumentsNeeded(Numbers):
    """MosaicML Streaming: only the library's own loader can call its method."""

    def state_dict(self, samples, from_beginning):
        raise AssertionError

    load_state_dict = state_dict


@pytest.mark.parametrize("L", [OURS, gluonloader.DataLoader])
def test_methods_that_need_arguments_are_not_called(L, workers):
    state, rest = left_after(L(ArgumentsNeeded(), 4, num_workers=workers), 1)
    assert continued(L(ArgumentsNeeded(), 4, num_workers=workers), state) == rest
