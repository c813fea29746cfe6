"""`lengths` of datasets that are made of other datasets: the numbers of tokens of their samples, or a reason."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import ArrayDataset, ConcatDataset, Dataset, MixtureSampler, StackDataset, Subset, random_split
from gluonloader.text import TokenDataset

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def words(lengths):
    return TokenDataset([np.arange(length) for length in lengths])


class OnlyLengths(Dataset):
    """A dataset whose samples cannot be read."""

    def __init__(self, lengths):
        self.lengths = np.asarray(lengths)

    def __getitem__(self, index):
        raise AssertionError("a sample was read")

    def __len__(self):
        return len(self.lengths)


def is_odd(tokens):
    return len(tokens) % 2


@st.composite
def chosen(draw):
    """Documents, after random steps that choose and join them."""
    data = words(draw(sizes))
    for step in draw(st.lists(st.sampled_from(["take", "shard", "filter", "split", "subset", "join", "add"]))):
        count = len(data)
        if step == "take":
            data = data.take(draw(st.integers(0, count + 1)))
        elif step == "shard":
            data = data.shard(2, draw(st.integers(0, 1)))
        elif step == "filter":
            data = data.filter(is_odd)
        elif step == "split":
            data = random_split(data, [0.7, 0.3], seed=0)[draw(st.integers(0, 1))]
        elif step == "subset" and count:
            data = Subset(data, draw(st.lists(st.integers(-count, count - 1)) | st.just(range(count - 1, -1, -1))))
        elif step == "join":
            data = ConcatDataset(words(draw(sizes)), data)
        elif step == "add":
            data += words(draw(sizes))
    return data


@given(chosen())
def test_lengths_are_those_of_the_samples(data):
    expected = [len(tokens) for tokens in data]
    for dataset in (data, pickle.loads(pickle.dumps(data))):
        assert dataset.lengths.tolist() == expected
        assert dataset.lengths.dtype.kind == "i"
    stacked = StackDataset(tokens=data, label=list(range(len(data))))
    assert stacked.lengths.tolist() == expected
    assert ArrayDataset(data).lengths.tolist() == expected


def test_no_sample_is_read():
    lengths = np.arange(2, 12)
    data = ConcatDataset(
        Subset(OnlyLengths(lengths), [3, 1]), OnlyLengths(lengths).take(2), OnlyLengths([7]).shard(1, 0)
    )
    assert StackDataset(data, data).lengths.tolist() == [5, 3, 2, 3, 7]


def test_splits_can_be_mixed_by_tokens():
    code, web = random_split(words([4] * 10), [5, 5], seed=0)[0], words([1] * 30).take(20)
    mixture = MixtureSampler([code, web], weights=[0.5, 0.5], unit="tokens", num_samples=25, seed=0)
    assert sum(index < 5 for index in mixture) == 5


class Upper(Subset):
    """Reads samples in another way."""

    def __getitem__(self, index):
        return super().__getitem__(index) * 2


class Known(Upper):
    def __init__(self, dataset, indices):
        super().__init__(dataset, indices)
        self.lengths = np.array([8])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Subset([1, 2], [0]), "Subset are not known: 'list' object has no attribute 'lengths'"),
        (words([2]) + [3], "ConcatDataset are not known: 'list' object has no"),
        (words([2]).transform(list), "Transformed are not known: a transform may change them; pass lengths of what"),
        (
            words([2]).transform(list, batched=True).take(1),
            "Subset are not known: the lengths of this _BatchTransformed",
        ),
        (ArrayDataset([1], [2]), "ArrayDataset are not known: no dataset in it has an attribute `lengths`"),
        (StackDataset(yes=words([2, 4]), no=words([2, 3])), "sample 1 has 4 tokens in 'yes', and 3 in 'no'; pass the"),
        (Upper(words([2, 4]), [1]), "Upper are not known: its __getitem__ may change them; define `lengths`"),
        (Subset(OnlyLengths([0.5]), [0]), r"OnlyLengths.lengths is not an array of 1 ints, one for each sample"),
        (Subset({"a": 1}, ["a"]), "its indices are no ints"),
    ],
)
def test_lengths_that_are_not_known(data, reason):
    assert not hasattr(data, "lengths")
    with pytest.raises(AttributeError, match=reason):
        data.lengths  # noqa: B018
    with pytest.raises(ValueError, match="unit='tokens' needs the lengths.*" + reason):
        MixtureSampler([data], unit="tokens", seed=0)
    assert MixtureSampler([data], seed=0).drawn[0].tokens is None


def test_a_subclass_may_set_its_own_lengths():
    data = Known(words([2, 4]), [1])
    assert data.lengths.tolist() == [8]
    assert data.take(1).lengths.tolist() == [8]
