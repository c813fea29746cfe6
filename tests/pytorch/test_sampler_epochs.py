"""Samplers whose order depends on an epoch, such as `DistributedSampler`: a resume never reads another epoch's order.

A trainer calls `set_epoch` before `iter`, between `iter` and the first batch (Lightning), or with another number, since
it counts epochs from 0 again after a restart (Fabric).
"""

import pytest

from gluonloader import DataLoader as CoreDataLoader
from gluonloader import RandomSampler
from gluonloader.state import add_checksum

from .sides import OURS as DataLoader
from .sides import Noise, continued, left_after, lists, torch

DistributedSampler = torch.utils.data.DistributedSampler


def loader(rank=0, **arguments):
    sampler = DistributedSampler(range(16), 2, rank)
    return DataLoader(range(16), batch_size=2, sampler=sampler, **arguments)


def batches(loader, epoch=None):
    if epoch is not None:
        loader.sampler.set_epoch(epoch)
    return lists(loader)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("epoch_after_restart", [None, 0, 1])
def test_the_rest_of_an_epoch_has_the_order_of_that_epoch(workers, rank, epoch_after_restart):
    expected, saving = batches(loader(rank), 1), loader(num_workers=workers)
    saving.sampler.set_epoch(1)
    state, _ = left_after(saving, 1)  # of rank 0, as some trainers save it
    resumed = loader(rank, num_workers=workers)
    resumed.load_state_dict(state)
    assert batches(resumed, epoch_after_restart) == expected[1:]
    assert batches(resumed, 2) == batches(loader(rank), 2)


class SelfCounting(torch.utils.data.Sampler):
    """Sets the next epoch when it has yielded its last index, like Accelerate's SeedableRandomSampler."""

    def __init__(self):
        self.epoch = 0

    def __iter__(self):
        yield from torch.randperm(16, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 16


@pytest.mark.parametrize("delivered", [1, 6, 7])
def test_a_sampler_that_is_ahead_of_the_delivered_batches_may_have_the_next_epoch(workers, delivered):
    uninterrupted = DataLoader(range(16), 2, sampler=SelfCounting())
    first, second = batches(uninterrupted), batches(uninterrupted)
    prefetch_factor = 4 if workers else None
    saving = DataLoader(range(16), 2, sampler=SelfCounting(), num_workers=workers, prefetch_factor=prefetch_factor)
    state, _ = left_after(saving, delivered)
    resumed = DataLoader(range(16), 2, sampler=SelfCounting(), num_workers=workers)
    assert [continued(resumed, state), batches(resumed)] == [first[delivered:], second]


@pytest.mark.parametrize("delivered", [0, 1, 7])
def test_a_sampler_that_counts_on_when_a_pass_starts(workers, delivered):
    """A sampler of gluonloader does so, and without batches it is the sampler itself that is iterated."""

    def make():
        return DataLoader(range(8), None, sampler=RandomSampler(8, seed=1), num_workers=workers)

    epochs = [list(loader) for loader in [make()] for _ in range(3)]
    saving, resumed = make(), make()
    list(saving)
    batches = iter(saving)
    assert [next(batches) for _ in range(delivered)] == epochs[1][:delivered]
    resumed.load_state_dict(saving.state_dict())
    assert [saving.indices(number) for number in range(8)] == epochs[1]
    assert [list(resumed), list(resumed)] == [epochs[1][delivered:], epochs[2]]


@pytest.mark.parametrize(
    "arguments", [{}, {"num_workers": 1, "persistent_workers": True}], ids=["serial", "persistent"]
)
def test_a_state_between_epochs_leaves_the_epoch_to_the_program(arguments):
    saving = loader(**arguments)
    assert batches(saving, 0) == batches(loader(), 0)
    resumed = loader(**arguments)
    resumed.load_state_dict(saving.state_dict())
    assert batches(resumed, 1) == batches(loader(), 1)


DATASETS = {
    "map": (Noise(), 2),
    "tensors": (torch.utils.data.TensorDataset(torch.arange(8)), 2),
    "no batches": (Noise(), None),
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
def test_a_state_between_epochs_contains_the_epoch_of_a_sampler_of_gluonloader(kind, persistent, workers):
    """The sampler counts its epochs by itself."""

    def make():
        options = {"num_workers": workers, "persistent_workers": persistent and workers}
        return DataLoader(*DATASETS[kind], sampler=RandomSampler(8, seed=1), **options)

    torch.manual_seed(1)
    loader = make()
    for _ in range(2):
        lists(loader)
        state = loader.state_dict()
    wanted = [lists(loader) for _ in range(2)]
    resumed = make()
    assert [continued(resumed, state), lists(resumed)] == wanted


def test_the_epoch_in_a_state_is_checked():
    state, _ = left_after(loader(), 1)
    with pytest.raises(ValueError, match="sampler_epoch='1': must be an int"):
        loader().load_state_dict(add_checksum({**state, "sampler_epoch": "1"}))


def test_samplers_inside_the_batch_samplers_of_trainers_are_found():
    class Shard:
        """Like Accelerate's BatchSamplerShard."""

        process_index, num_processes = 1, 2

        def __init__(self, batch_sampler):
            self.batch_sampler = batch_sampler

        def __iter__(self):
            return (batch for number, batch in enumerate(self.batch_sampler) if number % 2)

        def __len__(self):
            return len(self.batch_sampler) // 2

    def sharded(seed):
        sampler = torch.utils.data.RandomSampler(range(16), generator=torch.Generator().manual_seed(seed))
        return DataLoader(range(16), batch_sampler=Shard(torch.utils.data.BatchSampler(sampler, 2, False)))

    state, rest = left_after(sharded(0), 1)
    assert continued(sharded(1), state) == rest


def test_the_program_sets_the_epoch_as_with_torch(workers):
    """`gluonloader.DataLoader` counts epochs itself."""
    repeating = loader(num_workers=workers, persistent_workers=workers > 0)
    assert [batches(repeating) for _ in range(3)] == [batches(loader(), 0)] * 3
    assert [batches(repeating, epoch) for epoch in (0, 1, 5)] == [batches(loader(), epoch) for epoch in (0, 1, 5)]
    assert repeating.sampler.epoch == 5
    counting = CoreDataLoader(range(16), 2, sampler=loader().sampler)
    assert [batches(counting) for _ in range(3)] == [batches(loader(), epoch) for epoch in range(3)]
