"""What a dataset shares with the program, under each start method: the same objects as with torch's loader."""

import multiprocessing
import os
import signal

import pytest
from conftest import eventually, is_running
from inherited import KINDS, Sharing

from gluonloader.executors.process.inheritance import Inheritance
from gluonloader.executors.process.mapped_job import pickle_for, read_job, write_job
from gluonloader.work.task import Job

from .sides import OURS, differs, same, torch

from inherited_tensors import TENSORS, Ordinary  # isort: skip  # it imports torch, which may be missing

pytestmark = pytest.mark.spawn


def missing(L, kinds, start_method):
    """The kinds that do not work, in two epochs."""
    context = multiprocessing.get_context(start_method)
    dataset, found = Sharing(kinds, context), []
    try:
        loader = L(dataset, 4, num_workers=1, persistent_workers=True, multiprocessing_context=context, timeout=60)
        for _ in range(2):
            dataset.tell()
            found += dataset.missing(loader)
        return found
    finally:
        dataset.end()


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_everything_that_multiprocessing_and_torch_share(start_method):
    kinds = [*KINDS.values(), *TENSORS.values()]
    assert same(lambda L: len(missing(L, kinds, start_method))) == 0


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_tensors_of_a_worker_that_replaces_a_dead_one(strategy):
    """With "file_system", torch deletes the file of a tensor with the last reference to it."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    context = multiprocessing.get_context("forkserver")
    dataset = Sharing(TENSORS.values(), context)
    try:
        loader = OURS(dataset, 4, num_workers=1, persistent_workers=True, multiprocessing_context=context)
        dataset.tell()
        assert dataset.missing(loader) == []
        (process,) = loader._gluonloader.newest.core.epochs.workers.processes
        os.kill(process.pid, signal.SIGKILL)
        assert eventually(lambda: not is_running(process.pid))
        dataset.tell()
        assert dataset.missing(loader) == []
    finally:
        dataset.end()
        torch.multiprocessing.set_sharing_strategy(before)


@pytest.mark.parametrize("shared", [True, False])
def test_a_tensor_that_is_mapped_from_a_file_is_copied(shared, tmp_path):
    """torch cannot pass it to another process."""
    torch.arange(8).numpy().tofile(tmp_path / "tensor")
    tensor = torch.from_file(str(tmp_path / "tensor"), shared=shared, size=8, dtype=torch.int64)
    inheritance = Inheritance()
    mapped = write_job(pickle_for("spawn", Job(tensor, list, None, 1, 0), inheritance))
    copy = read_job(mapped).dataset
    os.close(mapped.fd)
    assert copy.tolist() == list(range(8))
    assert inheritance.objects == []


@differs("private-tensors")
def test_an_ordinary_tensor_is_not_shared(loader_class):
    assert missing(loader_class, [Ordinary], "forkserver") == missing(loader_class, [Ordinary], "fork")
