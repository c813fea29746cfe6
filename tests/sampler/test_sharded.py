"""Shares of one order: disjoint and complete, even if the number of ranks changes in mid-epoch."""

import sys
import tracemalloc
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_models import Foreign, keys_of_ranks

from gluonloader import (
    BlockShuffleSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    ShardedSampler,
    SimpleDataset,
    SubsetSampler,
    get_rng,
)
from gluonloader import ranks as ranks_module
from gluonloader.errors import MissingExtraError
from gluonloader.state import add_checksum

orders = st.sampled_from(
    [
        lambda length: RandomSampler(length, seed=3),
        lambda length: RandomSampler(length, seed=3, method="bijection"),
        lambda length: BlockShuffleSampler.of_size(length, 7, 2, seed=3),
        lambda length: SubsetSampler(range(length), shuffle=True, seed=3),
        SequentialSampler,
        Foreign,
        range,
    ]
)


# -- One epoch --------------------------------------------------------------------------------------------------------


@given(make=orders, length=st.integers(0, 40), ranks=st.integers(1, 9), even=st.sampled_from(["pad", "drop", "keep"]))
def test_shares_take_the_keys_of_one_order_in_turn(make, length, ranks, even):
    policy = {"pad": "repeat", "drop": "drop", "keep": "uneven"}[even]
    expected = keys_of_ranks(list(make(length)), 0, ranks, policy)
    shares = [ShardedSampler(make(length), ranks, index, even) for index in range(ranks)]
    assert [*map(list, shares)] == expected
    assert [*map(len, shares)] == [*map(len, expected)]


def test_a_share_of_a_sampler_without_epochs():
    share = ShardedSampler(range(5), 2, 0)
    share.set_epoch(3)
    assert list(share) == [0, 2, 4]


class TooLong:
    """Yields fewer indices than its length."""

    def __len__(self):
        return 10

    def __iter__(self):
        return iter(range(7))


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("even", ["pad", "drop"])
def test_a_sampler_that_yields_fewer_indices_than_its_length_is_an_error(even, index):
    text = "the length of the sampler is 10, but it has yielded 7 indices, .*; correct its __len__$"
    with pytest.raises(ValueError, match=text):
        list(ShardedSampler(TooLong(), 3, index, even))
    with pytest.raises(ValueError, match=text):
        list(DataLoader(range(10), 1, sampler=ShardedSampler(TooLong(), 3, index, even)))
    assert list(ShardedSampler(TooLong(), 3, index, "keep")) == list(range(7))[index::3]


def test_repr_shows_which_share_it_is():
    assert repr(ShardedSampler(range(5), 2, 1, "keep")) == "ShardedSampler(range(5), num_shards=2, index=1)"


def test_a_sampler_that_does_not_shuffle_needs_no_seed():
    assert list(ShardedSampler(SubsetSampler([4, 5, 6]), 2, 0)) == [4, 6]


# -- Positions: the number of ranks changes ---------------------------------------------------------------------------


def loader_of(share, size, last_batch="keep"):
    return DataLoader(range(1000), size, sampler=share, last_batch=last_batch, seed=1, batchify_fn=list)


def test_a_resume_at_the_end_of_an_epoch_pads_nothing():
    loader = loader_of(ShardedSampler(range(8), 4, 0), 1)
    list(islice(loader, 1))
    state = {**loader.state_dict(), "batch": 2, "offset": 8}
    fresh = loader_of(ShardedSampler(range(8), 3, 1), 1)
    fresh.load_state_dict(add_checksum(state))
    assert (list(fresh), list(fresh)) == ([], [[1], [4], [7]])


def test_carried_indices_load_only_into_the_same_share():
    def make(ranks, index):
        return loader_of(ShardedSampler(range(10), ranks, index), 3, "rollover")

    source = make(2, 1)
    list(source)
    state = source.state_dict()
    assert state["carried"] == [7, 9]
    same = make(2, 1)
    same.load_state_dict(state)
    assert list(same) == list(source)
    for ranks, index in ((3, 1), (2, 0)):
        text = rf"state: carried=\[7, 9\]: rank 1 of 2 started the epoch with these .* this is rank {index} of {ranks}"
        with pytest.raises(ValueError, match=text):
            make(ranks, index).load_state_dict(state, new_batch_size=True)
    list(islice(same, 1))
    again = make(2, 1)
    again.load_state_dict(same.state_dict())
    assert list(again) == [[5, 7, 9]], "what was carried was in the first batch"


# -- Ranks from elsewhere ---------------------------------------------------------------------------------------------

VARIABLES = [name for pair in ranks_module._VARIABLES for name in pair]


@pytest.fixture
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ],
)
def test_the_rank_of_the_environment(no_variables, rank, size):
    no_variables.setenv(rank, "2")
    with pytest.raises(
        ValueError, match=r"source='env': a launcher sets one of these pairs of .*: RANK and WORLD_SIZE, OMPI.*launcher"
    ):
        ShardedSampler.of_rank(range(10), "env")
    no_variables.setenv(size, "3")
    share = ShardedSampler.of_rank(range(10), "env", even="keep")
    assert (share.num_shards, share.index, share.even, list(share)) == (3, 2, "keep", [2, 5, 8])


def test_a_wrong_variable_is_named(no_variables):
    no_variables.setenv("RANK", "two")
    no_variables.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="environment variable RANK='two': must be an int >= 0"):
        ShardedSampler.of_rank(range(10), "env")
    no_variables.setenv("RANK", "3")
    with pytest.raises(
        ValueError,
        match="environment variables RANK=3, WORLD_SIZE=3: the rank must be less than the number of processes",
    ):
        ShardedSampler.of_rank(range(10), "env")


def test_the_environment_is_read_only_when_asked_for(no_variables):
    no_variables.setenv("RANK", "1")
    no_variables.setenv("WORLD_SIZE", "2")
    assert list(ShardedSampler(range(4), 1, 0)) == [0, 1, 2, 3]


def test_the_rank_of_torch(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    with pytest.raises(ValueError, match=r"source='torch': .*call torch.distributed.init_process_group\(\) first"):
        ShardedSampler.of_rank(range(4), "torch")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        share = ShardedSampler.of_rank(range(4), "torch")
    finally:
        distributed.destroy_process_group()
    assert (share.num_shards, share.index) == (1, 0)


def test_the_rank_of_mpi(monkeypatch):
    world = SimpleNamespace(Get_rank=lambda: 1, Get_size=lambda: 4)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_WORLD=world))
    share = ShardedSampler.of_rank(range(8), "mpi")
    assert list(share) == [1, 5]


@pytest.mark.parametrize(("source", "package"), [("torch", "torch"), ("mpi", "mpi4py")])
def test_a_package_that_is_not_installed_is_named(monkeypatch, source, package):
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"{package} is not installed"):
        ShardedSampler.of_rank(range(4), source)


AUGMENTED = SimpleDataset(range(40)).transform(lambda index: (index, get_rng().integers(2**62)))


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2, 4, 8])
def test_no_two_batches_of_an_epoch_share_their_random_numbers_though_the_ranks_change(before, after):
    def load(ranks, state, batches):
        drawn, first = [], None
        for rank in range(ranks):
            loader = DataLoader(AUGMENTED, 1, sampler=ShardedSampler(range(40), ranks, rank, "keep"), seed=3)
            if state is not None:
                loader.load_state_dict(state)
            iterator = iter(loader)
            drawn += [(int(index[0]), int(number[0])) for index, number in islice(iterator, batches)]
            first = first or loader.state_dict()
        return drawn, first

    drawn, state = load(before, None, 5)
    drawn += load(after, state, 39)[0]
    assert sorted(index for index, _ in drawn) == list(range(40))
    assert len({number for _, number in drawn}) == 40


def test_set_epoch_after_a_load_resumes_in_that_epoch():
    """Programs for torch call `set_epoch` in each epoch."""

    def make():
        sampler = ShardedSampler(RandomSampler(24, seed=1), 2, 0)
        return sampler, DataLoader(range(24), 2, sampler=sampler, seed=1)

    def lists(batches):
        return [batch.tolist() for batch in batches]

    sampler, loader = make()
    sampler.set_epoch(3)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, rest = loader.state_dict(), lists(iterator)
    sampler.set_epoch(4)
    after = lists(loader)
    sampler, loader = make()
    loader.load_state_dict(state)
    sampler.set_epoch(3)
    assert lists(loader) == rest
    sampler.set_epoch(4)
    assert lists(loader) == after
    sampler.set_epoch(3)
    assert lists(loader)[2:] == rest


def test_ranks_of_torchs_sampler_have_different_random_numbers():
    data = pytest.importorskip("torch.utils.data")
    drawn = []
    for rank in range(4):
        sampler = data.DistributedSampler(AUGMENTED, num_replicas=4, rank=rank)
        with DataLoader(AUGMENTED, 5, sampler=sampler, seed=1) as loader:
            drawn += [number for _, numbers in loader for number in numbers.tolist()]
    assert len(set(drawn)) == 40


@pytest.mark.slow
def test_a_share_of_large_blocks_computes_only_its_own_indices():
    order = list(BlockShuffleSampler([700_000, 600_000, 5], 2, seed=3))
    assert sorted(order) == list(range(1_300_005))
    assert list(ShardedSampler(BlockShuffleSampler([700_000, 600_000, 5], 2, seed=3), 7, 6, "keep")) == order[6::7]
    tracemalloc.start()
    share = iter(ShardedSampler(BlockShuffleSampler.of_size(10**9, 10**6, seed=3), 10**4, 7))
    next(share)  # reads 4096 indices, which are in 11 groups of 4,000,000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # bytes
