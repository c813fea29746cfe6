"""Errors, timeouts and dying workers. torch hangs or loses batches on some, so these tests have time limits."""

import pytest
from parity import Custom, Deadly, Spoiled, Stuck, kill, leave, outcome, until_the_end

from .sides import OURS, Broken, compared, differs, raised, same, samples, torch

data = torch.utils.data


ERRORS = [OSError("no file"), KeyError("k"), ValueError(), Custom("mine"), IndexError(7), RuntimeError("r")]


class ManyErrors:
    """Numbers; each second batch of two has an error of another class."""

    def __len__(self):
        return 4 * len(ERRORS)

    def __getitem__(self, index):
        if index % 4 == 1:
            raise ERRORS[index // 4]
        return index


class StreamOfErrors(data.IterableDataset):
    """The same, as an iterator that continues after the error."""

    def __iter__(self):
        return map(ManyErrors().__getitem__, range(4 * len(ERRORS)))


class Failing(data.IterableDataset):
    def __iter__(self):
        yield 1
        yield 2
        raise Custom("bad line")


def spoil(samples):
    if 3 in samples:
        raise Custom("no batch")
    return torch.tensor(samples)


def fail_to_start(worker):
    raise Custom("no GPU")


def test_a_batch_that_always_kills_its_worker_and_a_late_batch_are_runtime_errors():
    """A late batch is a TimeoutError of ours, too. What torch raises for a death depends on what it does just then."""
    assert isinstance(raised(OURS(Deadly(kill), 1, num_workers=1)), RuntimeError)
    same(lambda L: isinstance(raised(L(Stuck(5), 1, timeout=1.5, num_workers=1)), (RuntimeError, TimeoutError)))


LOADERS = {
    "many errors": lambda L, n: L(ManyErrors(), 2, num_workers=n),
    "stream of errors": lambda L, n: L(StreamOfErrors(), 2, num_workers=n),
    "too short": lambda L, n: L([1, 2], 2, sampler=[0, 1, 2], num_workers=n),
    "dataset": lambda L, n: L(Spoiled(9, 3, OSError()), 2, num_workers=n),
    "generator": lambda L, n: L(Failing(), 2, num_workers=n),
    "generator without batches of two": lambda L, n: L(Failing(), 1, num_workers=n),
    "collate_fn": lambda L, n: L(range(9), 2, collate_fn=spoil, num_workers=n),
    "sampler": lambda L, n: L(range(8), 2, sampler=Broken(5)),
    "sampler at once": lambda L, n: L(range(8), 2, sampler=Broken(0)),
    "persistent": lambda L, n: L(Spoiled(6, 3, OSError()), 2, num_workers=1, persistent_workers=True),
    "shuffled": lambda L, n: L(Spoiled(6, 3, OSError()), 2, shuffle=True, num_workers=n),
}


@pytest.mark.parametrize("kind", LOADERS)
@compared
def test_the_batches_and_the_epoch_after_an_error(L, workers, kind):
    loader = LOADERS[kind](L, workers)
    return [outcome(lambda: until_the_end(iter(loader))) for _ in range(2)]


@differs("error-texts")
@pytest.mark.parametrize("error", ERRORS[:4], ids=repr)
def test_an_error_keeps_its_arguments(loader_class, error):
    found = raised(loader_class(Spoiled(2, 1, error), 2, num_workers=1))
    assert (type(found), found.args) == (type(error), error.args)
    assert "in __getitem__" in str(found.__cause__)


@differs("start-errors")
def test_an_error_in_worker_init_fn_says_that_no_worker_can_start(loader_class):
    error = raised(loader_class(range(4), 2, num_workers=1, worker_init_fn=fail_to_start))
    assert isinstance(error, RuntimeError)
    assert "could not start: Custom: no GPU" in str(error)
    assert isinstance(error.__cause__, Custom)


@differs("worker-death", raises=RuntimeError)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", [kill, leave])
def test_a_worker_that_dies_costs_no_batch(loader_class, end, persistent, tmp_path):
    dataset = Deadly(end, str(tmp_path / "died"))
    loader = loader_class(dataset, 1, num_workers=2, persistent_workers=persistent)
    assert samples(loader) == samples(loader) == list(range(6))
