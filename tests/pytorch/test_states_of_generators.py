"""A dataset whose state contains torch's global generator, from which the order is drawn, too."""

import pytest

from .sides import OURS, torch


class Drawing(torch.utils.data.Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index

    def state_dict(self):
        return {"generator": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["generator"])


def numbers(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 1, 5, 6])
def test_no_sample_is_doubled_or_lost_and_later_epochs_are_the_same(batches, workers, persistent):
    def make(seed):
        torch.manual_seed(seed)
        return OURS(Drawing(), 2, shuffle=True, num_workers=workers, persistent_workers=persistent and workers > 0)

    loader = make(0)
    iterator = iter(loader)
    first = [next(iterator).tolist() for _ in range(batches)]
    state = loader.state_dict()
    rest, following = numbers(iterator), numbers(loader)
    assert sorted(sum(first + rest, [])) == list(range(11))
    other = make(1)
    other.load_state_dict(state)
    assert (numbers(other), numbers(other)) == (rest, following)
    for used in (loader, other):
        used.close()
