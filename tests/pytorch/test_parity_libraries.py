"""What other libraries do with torch's loader: subclasses, replaced parts, attributes of iterators.

Each class here has the pattern of a library's class.
"""

import contextlib
import pickle
import signal

import pytest
from interrupting import Alarm, SignalAt, raise_alarm

import gluonloader
from gluonloader.options import OnError

from .sides import OURS, THEIRS, Numbers, epoch, epochs, same, torch

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


def test_a_loader_without_end(workers):
    def pipeline(L):
        loader = infinite(L)(Numbers(), 4, shuffle=True, num_workers=workers)
        return epochs(loader, 3), len(loader)

    same(pipeline, state=False)


def test_an_iter_that_calls_get_iterator(workers):
    def pipeline(L):
        class Direct(L):
            def __iter__(self):
                return self._get_iterator()

        return epochs(Direct(Numbers(), 4, shuffle=True, num_workers=workers))

    same(pipeline)


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


def doubling(L):
    class Doubled(L):
        calls = 0

        def _get_iterator(self):
            self.calls += 1
            return Doubling(super()._get_iterator())

    return Doubled


def test_get_iterator_is_overridden(workers):
    def pipeline(L):
        loader = doubling(L)(Numbers(), 4, shuffle=True, num_workers=workers)
        return epochs(loader), loader.calls

    assert same(pipeline)[1][1] == 2


def test_get_iterator_is_overridden_and_workers_stay():
    def pipeline(L):
        loader = doubling(L)(Numbers(), 4, shuffle=True, num_workers=2, persistent_workers=True)
        return epochs(loader, 3), loader.calls, loader._iterator.resets

    assert same(pipeline)[1][1:] == [1, 2]


def of_torch(L):
    """LitData: a loader that makes torch's own iterators."""

    class OfTorch(L):
        def _get_iterator(self):
            kind = torchs._MultiProcessingDataLoaderIter if self.num_workers else torchs._SingleProcessDataLoaderIter
            return kind(self)

    return OfTorch


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_get_iterator_returns_torchs_iterators(num_workers, persistent):
    def pipeline(L):
        return epochs(of_torch(L)(Numbers(), 4, True, num_workers=num_workers, persistent_workers=persistent))

    same(pipeline)


def test_the_position_of_an_iterator_of_another_library_is_unknown():
    loader = of_torch(OURS)(Numbers(), 4)
    state = loader.state_dict()
    next(iter(loader))
    with pytest.raises(RuntimeError, match="OfTorch.state_dict: the position is unknown"):
        loader.state_dict()
    loader.load_state_dict(state)
    assert loader.state_dict() == state


def test_the_class_and_the_attributes_of_an_iterator(workers):
    def pipeline(L):
        loader = L(Numbers(), 4, num_workers=workers)
        iterator, counts = iter(loader), []
        for _ in iterator:
            counts.append(iterator._num_yielded)
        kinds = (torchs._SingleProcessDataLoaderIter, torchs._MultiProcessingDataLoaderIter)
        base = isinstance(iterator, torchs._BaseDataLoaderIter)
        return counts, base, [isinstance(iterator, kind) for kind in kinds], loader._iterator, iterator._num_workers

    assert same(pipeline)[1][0][1] == [1, 2, 3]


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


def test_persistent_workers_are_ended_through_the_loader():
    """As in mmengine and Lightning, which shut down what is in `loader._iterator`."""

    def pipeline(L):
        class Loader(L):
            def shut_down(self):
                self._iterator._shutdown_workers()
                self._iterator = None

        loader = Loader(Numbers(), 4, num_workers=1, persistent_workers=True)
        before = loader._iterator
        first = epoch(loader)
        assert isinstance(loader._iterator, torchs._MultiProcessingDataLoaderIter)
        (worker,) = loader._iterator._workers
        loader.shut_down()
        worker.join(10)
        ended = not worker.is_alive()
        return before, first, ended, epoch(loader)

    assert same(pipeline)[1][2] is True


def test_an_iterator_that_was_left_does_not_stay_in_the_loader():
    loader = OURS(range(40), 2, num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    left = loader._iterator
    assert [batch.tolist() for batch in loader] == [[i, i + 1] for i in range(0, 40, 2)]
    assert loader._iterator is not left
    assert next(left).tolist() == [2, 3]  # iterators are independent


class Saveable:
    """SpeechBrain: saves how many batches an iterator has yielded, and skips them after a resume."""

    skip = 0

    def __iter__(self):
        self.iterator = super().__iter__()
        return self.iterator


@pytest.fixture
def skipping(monkeypatch):
    """The constructor of torch's iterators skips batches, as SpeechBrain changes it."""
    original = torchs._BaseDataLoaderIter.__init__

    def changed(self, loader, *args, **kwargs):
        original(self, loader, *args, **kwargs)
        for number in range(getattr(loader, "skip", 0)):
            next(self._sampler_iter)
            self._num_yielded = number + 1
        if hasattr(loader, "skip"):
            loader.skip = 0

    monkeypatch.setattr(torchs._BaseDataLoaderIter, "__init__", changed)


def skipped(L, num_workers):
    loader = type("SaveableLoader", (Saveable, L), {})(Numbers(), 2, shuffle=True, num_workers=num_workers)
    loader.skip = 2
    rest = epoch(loader)
    return rest, loader.iterator._num_yielded, loader.skip, epoch(loader)


def test_another_library_skips_batches(skipping):
    rest, count = same(lambda L: skipped(L, 0))[1][:2]
    assert (len(rest[1]), count) == (4, 6)


def test_another_library_skips_batches_with_workers(skipping):
    """With torch, SpeechBrain also has to change `_reset`, which would draw the order again."""
    batches = []
    for num_workers in (0, 2):
        torch.manual_seed(1)
        rest, count, left, whole = skipped(OURS, num_workers)
        batches.append([[labels.tolist() for _, labels in part] for part in (rest, whole)])
        assert (count, left) == (6, 0)
    assert batches[0] == batches[1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_after_batches_that_another_library_has_skipped_loses_nothing(skipping):
    loader = type("SaveableLoader", (Saveable, OURS), {})(Numbers(), 2)
    loader.skip = 2
    expected = [labels.tolist() for _, labels in loader]
    before = signal.signal(signal.SIGALRM, raise_alarm)
    try:
        for point in range(0, 200, 3):
            loader.skip, found = 2, []
            iterator = iter(loader)
            with SignalAt(point, signal.SIGALRM) as signalled:
                while len(found) < len(expected):
                    with contextlib.suppress(Alarm):
                        found.append(next(iterator)[1].tolist())
            assert found == expected, signalled.where
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_state_of_a_pass_that_another_library_has_shortened_is_refused(skipping):
    loader = type("SaveableLoader", (Saveable, OURS), {})(Numbers(), 2)
    loader.skip = 2
    next(iter(loader))
    with pytest.raises(RuntimeError, match="another library has skipped the first 2 batches"):
        loader.state_dict()


class Names:
    """Names that our loader might use for itself."""

    _passes = "mine"

    def executor(self):
        return "mine"

    def stats(self):
        return "mine"

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
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert {loader.executor(), loader.stats(), loader._passes, loader.memory_limit} == {"mine"}
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


class Pairs(data.Dataset):
    def __getitem__(self, index):
        return index

    def __len__(self):
        return 10


def drawing(L, sampler, num_workers=0):
    return L(Pairs(), batch_size=None, sampler=sampler, num_workers=num_workers)


@pytest.mark.parametrize("stop", [1, 5, 8])
def test_a_checkpoint_of_a_sampler_is_exact_without_workers(stop):
    def pipeline(L):
        sampler = Drawing()
        loader = drawing(L, sampler)
        for _ in range(2):
            for number, _batch in enumerate(loader, 1):
                if number == stop:
                    state = sampler.state_dict()
        again = Drawing()
        again.load_state_dict(state)
        return state, epochs(drawing(L, again))

    rest = same(pipeline)[1][1][1][0]
    assert len(rest[1]) == 8 - stop


@pytest.mark.parametrize("stop", [1, 5, 8])
def test_a_loaded_state_of_a_sampler_that_is_its_own_iterator(stop, workers):
    """The state of the loader contains that of the sampler, also if workers have drawn ahead of it."""
    loader = drawing(OURS, Drawing(), workers)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    state, rest = loader.state_dict(), [list(batch) for batch in batches]
    again = drawing(OURS, Drawing(), workers)
    again.load_state_dict(state)
    assert [list(batch) for batch in again] == rest
    assert stop == 8 or [list(batch) for batch in again] == [list(batch) for batch in loader]


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
def test_a_dataset_that_starts_again_and_returns_itself(num_workers, batch_size):
    same(lambda L: epochs(L(OwnIterator(), batch_size, num_workers=num_workers)))


class Stateful(OwnIterator):
    """torchdata: the dataset is its own iterator, and its state is that of the iterator."""

    def state_dict(self):
        return {"nested": {"position": self.position}}

    def load_state_dict(self, state):
        self.position = state["nested"]["position"]


@pytest.mark.parametrize("stop", [0, 1, 2, 3])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_state_of_a_dataset_that_is_its_own_iterator(stop, batch_size, workers):
    loader = OURS(Stateful(), batch_size, num_workers=workers)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    state, rest = loader.state_dict(), [batch.tolist() if batch_size else batch for batch in batches]
    again = OURS(Stateful(), batch_size, num_workers=workers)
    again.load_state_dict(state)
    assert [batch.tolist() if batch_size else batch for batch in again] == rest


class ArgumentsNeeded(Numbers):
    """MosaicML Streaming: only the library's own loader can call its method."""

    def state_dict(self, samples, from_beginning):
        raise AssertionError

    load_state_dict = state_dict


@pytest.mark.parametrize("L", [OURS, gluonloader.DataLoader])
def test_methods_that_need_arguments_are_not_called(L, workers):
    loader = L(ArgumentsNeeded(), 4, num_workers=workers)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), [batch[1].tolist() for batch in batches]
    again = L(ArgumentsNeeded(), 4, num_workers=workers)
    again.load_state_dict(state)
    assert [batch[1].tolist() for batch in again] == rest
