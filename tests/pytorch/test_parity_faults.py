"""Errors, timeouts and dying workers. torch hangs or loses batches on some, so these tests have time limits."""

import copy
import gc
import os
import pickle
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from conftest import eventually
from parity import Deadly, kill

import gluonloader
from gluonloader.options import Processes

from .differences import differs
from .sides import THEIRS, Numbers, epoch, raised_by, same, samples, torch

data = torch.utils.data


class Spoiled(data.Dataset):
    """Numbers, and one that is an error."""

    def __init__(self, length, bad, error):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error
        return index


class SpoiledStream(data.IterableDataset):
    """The same, as an iterator that continues after the error."""

    def __init__(self, *arguments):
        self.items = Spoiled(*arguments)

    def __iter__(self):
        return map(self.items.__getitem__, range(len(self.items)))


class Custom(Exception):
    """An error class of the user's."""


class Detailed(Exception):
    """An error whose constructor has two arguments."""

    def __init__(self, code, file):
        super().__init__(code, file)
        self.code = code


ERRORS = [OSError("no file"), KeyError("k"), ValueError(), Custom("mine"), IndexError(7), RuntimeError("r")]


def until_the_end(batches, most=20):
    """The batches of an iterator, and the types of the errors between them."""
    seen = []
    for _ in range(most):
        try:
            seen.append(next(batches))
        except StopIteration:
            return [*seen, "end"]
        except Exception as error:
            seen.append(type(error).__name__)
    return seen


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_in_a_dataset_keeps_its_type(workers, error):
    same(lambda L: epoch(L(Spoiled(4, 1, error), 2, num_workers=workers)), raises=type(error))


@pytest.mark.parametrize("error", ERRORS[:2], ids=repr)
def test_an_error_in_a_stream_keeps_its_type(workers, error):
    same(lambda L: epoch(L(SpoiledStream(4, 1, error), 2, num_workers=workers)), raises=type(error))


def test_the_batches_after_an_error_still_come(workers):
    returned = same(lambda L: until_the_end(iter(L(Spoiled(9, 3, OSError()), 2, num_workers=workers))))
    assert len(returned[1]) == 6


def test_the_epoch_after_an_error(workers):
    def pipeline(L):
        loader = L(Spoiled(6, 3, OSError()), 2, shuffle=True, num_workers=workers)
        return [until_the_end(iter(loader)) for _ in range(2)]

    same(pipeline)


def test_the_epoch_after_an_error_with_persistent_workers():
    def pipeline(L):
        loader = L(Spoiled(6, 3, OSError()), 2, num_workers=1, persistent_workers=True)
        return [until_the_end(iter(loader)) for _ in range(2)]

    same(pipeline)


def test_a_generator_that_failed_has_ended(workers):
    class Failing(data.IterableDataset):
        def __iter__(self):
            yield 1
            yield 2
            raise Custom("bad line")

    same(lambda L: until_the_end(iter(L(Failing(), 2, num_workers=workers))))
    same(lambda L: until_the_end(iter(L(Failing(), 1, num_workers=workers))))


def spoil(samples):
    if 3 in samples:
        raise Custom("no batch")
    return samples


def test_an_error_in_collate_fn(workers):
    same(lambda L: until_the_end(iter(L(range(9), 2, collate_fn=spoil, num_workers=workers))))


class Broken(data.Sampler):
    """A sampler that fails after some indices."""

    def __init__(self, good):
        self.good = good

    def __iter__(self):
        yield from range(self.good)
        raise Custom("no index")

    def __len__(self):
        return 8


def test_an_error_in_a_sampler_without_workers():
    same(lambda L: until_the_end(iter(L(range(8), 2, sampler=Broken(5)))))
    same(lambda L: until_the_end(iter(L(range(8), 2, sampler=Broken(0)))))


@differs("sampler-errors", raises=Custom)
def test_an_error_in_a_sampler_comes_after_the_batches_before_it(loader_class):
    batches = iter(loader_class(range(8), 2, sampler=Broken(4), num_workers=2))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(Custom):
        next(batches)


def fail_to_start(worker):
    raise Custom("no GPU")


@differs("start-errors", raises=Custom)
def test_an_error_in_worker_init_fn_says_that_no_worker_can_start(loader_class):
    with pytest.raises(RuntimeError, match="worker 0 .* could not start: Custom: no GPU") as raised:
        list(loader_class(range(4), 2, num_workers=1, worker_init_fn=fail_to_start))
    assert isinstance(raised.value.__cause__, Custom)


def test_index_error_of_a_dataset_that_is_too_short(workers):
    same(lambda L: epoch(L([1, 2], 2, sampler=[0, 1, 2], num_workers=workers)), raises=IndexError)


@differs("error-texts")
@pytest.mark.parametrize("error", ERRORS[:4], ids=repr)
def test_an_error_keeps_its_arguments(loader_class, error):
    with pytest.raises(type(error)) as raised:
        list(loader_class(Spoiled(2, 1, error), 2, num_workers=1))
    assert raised.value.args == error.args
    assert "in __getitem__" in str(raised.value.__cause__)


@differs("error-classes", raises=RuntimeError)
def test_an_error_whose_constructor_has_several_arguments_keeps_its_class(loader_class):
    with pytest.raises(Detailed) as raised:
        list(loader_class(Spoiled(2, 1, Detailed(5, "a")), 2, num_workers=1))
    assert raised.value.code == 5


def test_stop_iteration_in_a_dataset_that_torch_takes_for_the_end():
    """This is why the next test differs: torch reads 2 batches of 3, without an error."""
    assert samples(THEIRS(Spoiled(6, 4, StopIteration()), 2)) == [0, 1, 2, 3]


@differs("stop-iteration", raises=pytest.fail.Exception)
def test_stop_iteration_in_a_dataset_is_an_error(loader_class, workers):
    batches = iter(loader_class(Spoiled(6, 3, StopIteration()), 2, num_workers=workers))
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(RuntimeError):
        list(batches)


def leave():
    os._exit(1)


@differs("worker-death", raises=RuntimeError)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", [kill, leave])
def test_a_worker_that_dies_costs_no_batch(loader_class, end, persistent, tmp_path):
    dataset = Deadly(end, str(tmp_path / "died"))
    loader = loader_class(dataset, 1, num_workers=2, persistent_workers=persistent)
    assert samples(loader) == list(range(6))
    assert samples(loader) == list(range(6))


def test_a_batch_that_always_kills_its_worker_is_a_runtime_error():
    same(lambda L: bool(raised_by(epoch, L(Deadly(kill), 1, num_workers=1))))


@differs("worker-death", raises=pytest.fail.Exception)
def test_a_batch_that_always_kills_its_worker_is_named(loader_class):
    batches = iter(loader_class(Deadly(kill), 2, num_workers=1))
    seen = until_the_end(batches)
    if [batch if isinstance(batch, str) else batch.tolist() for batch in seen] != [[0, 1], "WorkerDied", [4, 5], "end"]:
        pytest.fail(repr(seen))


@differs("worker-exit", raises=pytest.fail.Exception)
def test_sys_exit_in_a_dataset_is_an_error_like_others(loader_class):
    seen = until_the_end(iter(loader_class(Deadly(sys.exit), 2, num_workers=1)))
    if [batch if isinstance(batch, str) else batch.tolist() for batch in seen] != [
        [0, 1],
        "RuntimeError",
        [4, 5],
        "end",
    ]:
        pytest.fail(repr(seen))


class Stuck(data.Dataset):
    """Numbers; one of them takes for ever."""

    def __init__(self, at=1):
        self.at = at

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == self.at:
            time.sleep(3)
        return index


def test_a_late_batch_is_a_runtime_error_of_torch_and_a_timeout_error_here():
    same(lambda L: bool(raised_by(epoch, L(Stuck(), 1, timeout=0.5, num_workers=1))))


@differs("late-batches", raises=RuntimeError)
def test_a_late_batch_says_where_it_is_stuck(loader_class):
    batches = iter(loader_class(Stuck(), 1, timeout=0.5, num_workers=1))
    assert next(batches).tolist() == [0]
    with pytest.raises(TimeoutError, match="in __getitem__"):
        next(batches)
    assert next(batches).tolist() == [2]


@differs("timeout-without-workers", raises=AssertionError)
def test_a_timeout_without_workers_has_no_effect(loader_class):
    assert samples(loader_class(range(4), 2, timeout=5)) == [0, 1, 2, 3]


class Locked:
    """A sample that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()


@differs("unpicklable-batches", raises=RuntimeError)
def test_a_batch_that_cannot_be_pickled_is_an_error(loader_class):
    """With torch nothing arrives; the timeout ends that here."""
    loader = loader_class([Locked()], 1, collate_fn=list, num_workers=1, timeout=2)
    with pytest.raises(TypeError, match="pickle"):
        list(loader)


@differs("unpicklable-datasets", raises=TypeError)
@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_a_dataset_that_cannot_be_pickled_is_named_with_spawn(loader_class):
    with pytest.raises(gluonloader.errors.TransportError, match="dataset"):
        list(loader_class([Locked()], 1, num_workers=1, multiprocessing_context="spawn"))


@differs("any-process", raises=AssertionError)
def test_a_loader_in_a_daemonic_process(loader_class):
    def daemon(writer):
        warnings.simplefilter("ignore")
        try:
            writer.send(samples(loader_class(range(4), 2, num_workers=1)))
        except AssertionError as error:
            writer.send(str(error))

    context = torch.multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=daemon, args=(writer,), daemon=True)
    process.start()
    received = reader.recv()
    process.join()
    assert received == [0, 1, 2, 3]


@differs("several-iterators")
def test_two_iterators_with_persistent_workers_are_independent(loader_class):
    loader = loader_class(range(8), 2, num_workers=1, persistent_workers=True)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)] == [([i, i + 1],) * 2 for i in (0, 2, 4, 6)]


@differs("copies", raises=(NotImplementedError, TypeError))
def test_a_loader_whose_persistent_workers_run_can_be_copied(loader_class):
    loader = loader_class(range(4), 2, num_workers=1, persistent_workers=True)
    assert samples(loader) == [0, 1, 2, 3]
    assert samples(copy.deepcopy(loader)) == samples(pickle.loads(pickle.dumps(loader))) == [0, 1, 2, 3]


class Meeting(data.Dataset):
    """The first sample is finished only after the third one was read."""

    def __init__(self):
        self.third = torch.multiprocessing.get_context("fork").Event()

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 2:
            self.third.set()
        assert index != 0 or self.third.wait(2)
        return index


@differs("free-workers", raises=AssertionError)
def test_a_slow_batch_does_not_hold_up_the_batches_after_it(loader_class):
    assert samples(loader_class(Meeting(), 1, num_workers=2)) == list(range(6))


class Noise(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(()).item(), np.random.rand()


@differs("random-numbers")
def test_random_numbers_in_samples_do_not_depend_on_the_number_of_workers(loader_class):
    def numbers(num_workers):
        torch.manual_seed(5)
        loader = loader_class(Noise(), 2, num_workers=num_workers)
        return [column.tolist() for batch in loader for column in batch]

    assert numbers(0) == numbers(1) == numbers(2)


@differs("random-numbers")
def test_random_numbers_in_samples_leave_the_generators_of_the_program_alone(loader_class):
    before = np.random.get_state()[2]
    list(loader_class(Noise(), 2))
    assert np.random.get_state()[2] == before


@differs("persistent-random-numbers")
def test_random_numbers_of_a_second_run_of_persistent_workers_can_be_repeated(loader_class):
    def second(first_broken):
        torch.manual_seed(5)
        loader = loader_class(Noise(), 2, num_workers=1, persistent_workers=True)
        for _ in loader:
            if first_broken:
                break
        return [column.tolist() for batch in loader for column in batch]

    assert second(False) == second(True)


class Drawn(list):
    drawn = 0

    def __iter__(self):
        for keys in super().__iter__():
            self.drawn += 1
            yield keys


def test_without_workers_the_indices_of_a_batch_are_drawn_when_the_batch_is_loaded():
    def pipeline(L):
        sampler = Drawn([[0], [1], [2]])
        batches = iter(L(range(3), batch_sampler=sampler))
        seen = [sampler.drawn]
        for batch in batches:
            seen += [batch, sampler.drawn]
        return seen

    same(pipeline)


class Opened(data.IterableDataset):
    opened = 0

    def __iter__(self):
        self.opened += 1
        return iter([1])


@differs("late-streams")
def test_without_workers_a_stream_is_opened_for_its_first_batch(loader_class):
    dataset = Opened()
    batches = iter(loader_class(dataset))
    assert dataset.opened == 0
    next(batches)
    assert dataset.opened == 1


@differs("array-strides", raises=ValueError)
def test_arrays_with_negative_strides(loader_class):
    (batch,) = loader_class([np.arange(3)[::-1]] * 2, 2)
    assert batch.tolist() == [[2, 1, 0]] * 2


@differs("conjugates", raises=RuntimeError)
def test_conjugate_tensors_in_workers(loader_class):
    (batch,) = loader_class([torch.tensor([1 + 2j]).conj()] * 2, 2, num_workers=1)
    assert batch.tolist() == [[1 - 2j]] * 2


@differs("resize", raises=pytest.fail.Exception)
def test_batches_of_tensors_cannot_be_resized(loader_class):
    (batch,) = loader_class([torch.zeros(4096)] * 2, 2)
    with pytest.raises(RuntimeError, match="resize"):
        batch.resize_(3, 4096)


def warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return len(caught)


@differs("pin-memory-warning")
def test_pin_memory_without_an_accelerator_warns_once(loader_class):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    loader = loader_class(Numbers(4), 2, pin_memory=True)
    assert warned(lambda: [list(loader) for _ in range(3)]) <= 1


class Longer(data.IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter(range(5))


@differs("length-warning")
def test_more_batches_than_len_are_one_warning(loader_class):
    loader = loader_class(Longer(), None)
    assert len(loader) == 2
    assert warned(lambda: list(loader)) == 1


@differs("functions-checked", raises=pytest.fail.Exception)
@pytest.mark.parametrize("argument", ["collate_fn", "worker_init_fn"])
def test_a_function_that_cannot_be_called_is_an_error_of_the_constructor(loader_class, argument):
    with pytest.raises(ValueError, match=argument):
        loader_class([1], num_workers=1, **{argument: 3})


@differs("data-pipes", raises=pytest.fail.Exception)
@pytest.mark.filterwarnings("ignore")
def test_data_pipes_are_refused(loader_class):
    from torch.utils.data.datapipes.iter import IterableWrapper

    with pytest.raises(ValueError, match="IterDataPipe"):
        loader_class(IterableWrapper([1, 2]))


@differs("more-arguments", raises=TypeError)
def test_arguments_of_gluonloader(loader_class):
    with loader_class(range(4), 2, num_workers=1, executor=Processes(max_retries=3), memory_limit="64MB") as loader:
        assert samples(loader) == [0, 1, 2, 3]


@differs("quiet-deletion", raises=AssertionError)
def test_a_wrong_prefetch_factor_leaves_no_second_error(loader_class, monkeypatch):
    later = []
    gc.collect()  # the loaders of other tests
    monkeypatch.setattr("sys.unraisablehook", later.append)
    try:
        list(loader_class([1, 2], num_workers=1, prefetch_factor=0))
    except (ValueError, AssertionError):
        pass
    assert eventually(lambda: not later, 1)
