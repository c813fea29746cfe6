"""A new sampler of the library needs an order and nothing else: the loader does epochs, ranks, positions and replay."""

import json
from itertools import islice

import numpy as np
import pytest

from gluonloader import DataLoader, Ranks, merge_states
from gluonloader.sampler.base import SeededSampler


class EveryKthFirst(SeededSampler):
    """Yields every `k`-th index, and then the other indices, in random order."""

    def __init__(self, length, k, seed=None):
        super().__init__(seed)
        self._indices, self._identity = range(length), {"k": k}

    def order(self, epoch):
        others = np.delete(np.arange(len(self)), slice(None, None, self._identity["k"]))
        shuffled = np.random.default_rng(self.epoch_seed(epoch)).permutation(others)
        return np.concatenate([np.arange(0, len(self), self._identity["k"]), shuffled])


def loader(size, k=4, ranks=None):
    return DataLoader(range(30), size, sampler=EveryKthFirst(30, k, 1), seed=0, ranks=ranks, batchify_fn=list)


def test_it_counts_epochs():
    sampler = EveryKthFirst(9, 4, seed=1)
    first, second = list(sampler), list(sampler)
    assert first[:3] == second[:3] == [0, 4, 8]
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_its_positions_load_on_other_ranks_and_with_other_batch_sizes():
    order = EveryKthFirst(30, 4, 1).order(0).tolist()
    ranks = [loader(3, ranks=Ranks(index, 2, "uneven")) for index in range(2)]
    for rank in ranks:
        next(iter(rank))
    state = json.loads(json.dumps(merge_states(rank.state_dict() for rank in ranks)))
    alone = loader(6)
    alone.load_state_dict(state)
    assert list(islice(alone, 2)) == [order[6:12], order[12:18]]
    three = [loader(4, ranks=Ranks(index, 3, "uneven")) for index in range(3)]
    for rank in three:
        rank.load_state_dict(state, new_batch_size=True)
    assert [next(iter(rank)) for rank in three] == [order[6:18][index::3] for index in range(3)]


def test_a_position_of_another_one_is_refused():
    with pytest.raises(ValueError, match=r"state: sampler\.k=4: this EveryKthFirst has k=5"):
        loader(6, k=5).load_state_dict(loader(6).state_dict())


def test_any_batch_can_be_named_and_made_again():
    whole = loader(7)
    epochs = [list(whole) for _ in range(3)]
    assert loader(7).indices(2, 3) == loader(7).replay(2, 3) == epochs[2][3]
    assert loader(7).upcoming(40) == [key for batch in epochs[0] + epochs[1] for key in batch][:40]
