"""What differs from torch, as a table: a call, and its result with both classes. docs/torch.md has the reasons.

Differences that need more than one call are in the other files, marked with `differs`.
"""

import copy
import gc
import pickle
import sys
import threading
import warnings

import numpy as np
import pytest
from conftest import eventually
from parity import (
    OTHER,
    Case,
    Deadly,
    Spoiled,
    Stuck,
    check_case,
    check_that_each_has_a_test,
    error_names,
    in_a_daemonic_process,
    kill,
    late,
    outcome,
    until_the_end,
)

from gluonloader.errors import TransportError
from gluonloader.options import Processes

from .sides import DIFFERENCES, Broken, Noise, Numbers, cases, differs, lists, raised, samples, torch

data, pipes = torch.utils.data, torch.utils.data.datapipes.iter

pytestmark = pytest.mark.filterwarnings("ignore:Got pickle error", "ignore::UserWarning:torch.utils.data.datapipes")


class Detailed(Exception):
    """An error whose constructor has two arguments."""

    def __init__(self, code, file):
        super().__init__(code, file)
        self.code = code


class Locked:
    """A sample that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()


class DrawnAtOnce(data.Sampler):
    """Draws its order when `iter` is called, before the first index is needed."""

    def __iter__(self):
        return iter(torch.randperm(20).tolist())


def orders_without_and_with_workers_are_equal(L):
    def order(num_workers):
        torch.manual_seed(0)
        return lists(L(range(20), None, sampler=DrawnAtOnce(), num_workers=num_workers))

    return order(0) == order(2)


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


class Opened(data.IterableDataset):
    opened = 0

    def __iter__(self):
        self.opened += 1
        return iter([1])


class Longer(data.IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter(range(5))


def with_options(L):
    with L(range(4), 2, num_workers=1, executor=Processes(max_retries=3), memory_limit="64MB") as loader:
        return samples(loader)


class Permuted(data.IterableDataset):
    def __iter__(self):
        yield from np.random.permutation(6).tolist()


def draws_as_the_program_has_seeded(L):
    np.random.seed(3)
    expected = np.random.permutation(6).tolist()
    np.random.seed(3)
    return lists(L(Permuted(), None)) == expected


def copies_of_a_running_loader(L):
    loader = L(range(4), 2, num_workers=1, persistent_workers=True)
    return samples(loader), samples(copy.deepcopy(loader)), samples(pickle.loads(pickle.dumps(loader)))


def warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return len(caught)


def warnings_of_lengths(L):
    loader = L(Longer(), None)
    return len(loader), warned(lambda: list(loader))


def warns_of_pinning_once(L):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    loader = L(Numbers(4), 2, pin_memory=True)
    return warned(lambda: [list(loader) for _ in range(3)]) <= 1


def noise(L, num_workers):
    torch.manual_seed(5)
    return [column.tolist() for batch in L(Noise(), 2, num_workers=num_workers) for column in batch]


def second_epoch(L, first_broken):
    torch.manual_seed(5)
    loader = L(Noise(), 2, num_workers=1, persistent_workers=True)
    for _ in loader:
        if first_broken:
            break
    return [column.tolist() for batch in loader for column in batch]


def moves_numpys_generator(L):
    before = np.random.get_state()[2]
    list(L(Noise(), 2))
    return np.random.get_state()[2] != before


def zipped_with_itself(L):
    loader = L(range(8), 2, num_workers=1, persistent_workers=True)
    return [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)]


def opened_before_and_after_the_first_batch(L):
    dataset = Opened()
    batches = iter(L(dataset))
    before = dataset.opened
    next(batches)
    return before, dataset.opened


def from_a_worker(L):
    made = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.ones(2, 3).T, torch.ones(1).expand(4)
    (batch,) = L([1], collate_fn=lambda samples: made, num_workers=1)
    return batch


def views_share_memory(L):
    ((whole, part),) = L([1], collate_fn=lambda samples: (made := torch.zeros(4), made[:2]), num_workers=1)
    whole[0] = 1
    return part[0].item() == 1


def resized(L):
    (batch,) = L([torch.zeros(300_000)] * 2, 2)
    return tuple(batch.resize_(3, 300_000).shape)


ONE, SPAWN = {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "spawn"}
FOUR = [0, 1, 2, 3]


@cases(
    # Interface
    Case("more-arguments", with_options, "TypeError", FOUR),
    Case("functions-checked", lambda L: error_names("collate_fn", lambda: L([1], **ONE, collate_fn=3)),
         None, True),
    Case("functions-checked",
         lambda L: error_names("worker_init_fn", lambda: L([1], **ONE, worker_init_fn=3)), None, True),
    Case("text-datasets", lambda L: error_names("list(text)", lambda: list(L("ab"))), None, True),
    Case("timeout-without-workers", lambda L: samples(L(range(4), 2, timeout=5)), "AssertionError", FOUR),
    Case("copies", copies_of_a_running_loader, OTHER, (FOUR, FOUR, FOUR)),
    Case("data-pipes", lambda L: error_names("IterDataPipe", lambda: L(pipes.IterableWrapper([1]))), None,
         True),
    Case("pin-memory-warning", warns_of_pinning_once, False, True),
    Case("length-warning", warnings_of_lengths, (2, 3), (2, 1)),
    # Order and random numbers
    Case("random-numbers", lambda L: noise(L, 0) == noise(L, 1) == noise(L, 2), False, True),
    Case("random-numbers", moves_numpys_generator, True, False),
    Case("persistent-random-numbers", lambda L: second_epoch(L, False) == second_epoch(L, True), False, True),
    Case("stream-random-numbers", draws_as_the_program_has_seeded, True, False),
    Case("free-workers", lambda L: samples(L(Meeting(), 1, num_workers=2)), "AssertionError", list(range(6))),
    Case("several-iterators", zipped_with_itself, OTHER, [([i, i + 1],) * 2 for i in (0, 2, 4, 6)]),
    Case("sampler-calls", orders_without_and_with_workers_are_equal, False, True),
    Case("late-streams", opened_before_and_after_the_first_batch, (1, 1), (0, 1)),
    # Batches
    Case("array-strides", lambda L: lists(L([np.arange(3)[::-1]] * 2, 2)), "ValueError", [[[2, 1, 0]] * 2]),
    Case("conjugates", lambda L: lists(L([torch.tensor([1 + 2j]).conj()] * 2, 2, num_workers=1)), "RuntimeError",
         [[[1 - 2j]] * 2]),
    Case("conjugates",
         lambda L: lists(L([1], collate_fn=lambda samples: torch.tensor([1 + 2j]).conj(), num_workers=1)),
         [[1 + 2j]], [[1 - 2j]]),
    Case("empty-batches",
         lambda L: error_names("batch_sampler", lambda: list(L([0, 1], batch_sampler=[[1], []], collate_fn=list))),
         None, True),
    Case("contiguous-batches", lambda L: [each.is_contiguous() for each in from_a_worker(L)], OTHER, [True] * 3),
    Case("separate-views", views_share_memory, True, False),
    Case("resize", resized, (3, 300_000), "RuntimeError"),
    # Errors and workers
    Case("error-classes",
         lambda L: getattr(raised(L(Spoiled(2, 1, Detailed(5, "a")), 2, num_workers=1)), "code", None), None, 5),
    Case("sampler-errors", lambda L: until_the_end(iter(L(range(8), 2, sampler=Broken(4), num_workers=2))),
         "Custom", [[0, 1], [2, 3], "Custom", "end"]),
    Case("stop-iteration", lambda L: samples(L(Spoiled(6, 4, StopIteration()), 2)), FOUR, "RuntimeError"),
    Case("stop-iteration", lambda L: until_the_end(iter(L(Spoiled(6, 3, StopIteration()), 2, num_workers=2))),
         OTHER, [[0, 1], "RuntimeError", [4, 5], "end"]),
    Case("late-batches", lambda L: late(iter(L(Stuck(5), 1, timeout=1.5, num_workers=1))), "RuntimeError",
         ([0], True, [[2], "end"])),
    Case("worker-death", lambda L: until_the_end(iter(L(Deadly(kill), 2, num_workers=1))), OTHER,
         [[0, 1], "WorkerDied", [4, 5], "end"]),
    Case("worker-exit", lambda L: until_the_end(iter(L(Deadly(sys.exit), 2, num_workers=1))), OTHER,
         [[0, 1], "RuntimeError", [4, 5], "end"]),
    # With torch nothing arrives; the timeout ends that here.
    Case("unpicklable-batches",
         lambda L: error_names("pickle", lambda: list(L([Locked()], **ONE, collate_fn=list, timeout=2)), TypeError),
         "RuntimeError", True),
    Case("unpicklable-datasets",
         lambda L: error_names("dataset", lambda: list(L([Locked()], 1, **SPAWN)), TransportError),
         "TypeError", True),
    Case("any-process", lambda L: in_a_daemonic_process(lambda: samples(L(range(4), 2, num_workers=1))),
         "AssertionError", FOUR),
)  # fmt: skip
def test_what_differs(loader_class, case, wanted):
    check_case(loader_class, case, wanted)


@differs("quiet-deletion", raises=AssertionError)
def test_a_wrong_prefetch_factor_leaves_no_second_error(loader_class, monkeypatch):
    later = []
    gc.collect()  # the loaders of other tests
    monkeypatch.setattr("sys.unraisablehook", later.append)
    outcome(lambda: list(loader_class([1, 2], num_workers=1, prefetch_factor=0)))
    assert eventually(lambda: not later, 1)


def test_each_difference_on_the_page_has_a_test():
    check_that_each_has_a_test(DIFFERENCES, "pytorch")
