"""A state says what the tokens were and how rows are laid out, so that a changed file or another layout is noticed."""

import json

import numpy as np
import pytest

from gluonloader import ConcatDataset, DataLoader
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset


def tokens(count=50, **arguments):
    return TokenDataset([np.arange(number % 7 + 1) for number in range(count)], **arguments)


def loader(data=None, rows=None):
    data = tokens() if data is None else data
    lengths = np.array([len(document) for document in data])
    sampler = PackingSampler(lengths, 16, seed=1)
    rows = PackRows() if rows is None else rows
    return DataLoader(PackedDataset(data), 2, sampler=sampler, batchify_fn=rows, seed=1)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda: loader(tokens(51)), "data.documents=50: this TokenDataset has documents=51"),
        (
            lambda: loader(TokenDataset([*tokens()][:-1] + [np.arange(99)])),
            "data.tokens=197: this TokenDataset has tokens=295",
        ),
        (
            lambda: loader(TokenDataset(np.split(np.concatenate(list(tokens())), range(1, 50)))),
            r"data.lengths=\d+: this TokenDataset has lengths=\d+",
        ),
        (lambda: loader(tokens(vocabulary=99)), "data.vocabulary=10: this TokenDataset has vocabulary=99"),
        (lambda: loader(rows=PackRows(pad=3)), "data.pad=0: this PackRows has pad=3"),
        (lambda: loader(rows=PackRows("flat")), "data.layout='rows': this PackRows has layout='flat'"),
        (lambda: loader(rows=PackRows(labels="same")), "data.labels='shift': this PackRows has labels='same'"),
        (lambda: loader(rows=list), "data=.*this dataset and batchify_fn have TokenDataset; pass those that were"),
        (lambda: DataLoader(range(9), 2, seed=1), "data=.*have no part that a state describes"),
        (lambda: loader(ConcatDataset([tokens()] * 20)), r"data=.*batchify_fn have 22 parts"),
    ],
)
def test_a_state_of_other_data_is_refused(other, text):
    state = loader(tokens(vocabulary=10)).state_dict()
    changed = other()
    before = changed.state_dict()
    with pytest.raises(ValueError, match=f"state: {text}"):
        changed.load_state_dict(json.dumps(state))
    assert changed.state_dict() == before


def test_a_check_of_the_vocabulary_may_be_added_or_removed():
    loader(tokens(vocabulary=10)).load_state_dict(loader().state_dict())
    loader().load_state_dict(loader(tokens(vocabulary=10)).state_dict())


def test_very_many_parts_are_a_hash():
    state = loader(ConcatDataset([tokens()] * 20)).state_dict()
    assert len(json.dumps(state["data"])) < 100
    loader(ConcatDataset([tokens()] * 20)).load_state_dict(state)
    changed = loader(ConcatDataset([tokens()] * 19 + [tokens(51)]))
    with pytest.raises(ValueError, match="state: data.hash="):
        changed.load_state_dict(state)


def test_windows_of_tokens_are_described():
    def make(stride):
        return DataLoader(tokens().windows(8, stride=stride), 2, seed=1)

    with pytest.raises(ValueError, match="state: "):
        make(4).load_state_dict(make(8).state_dict())
    same_length = DataLoader(tokens().windows(8, extra=1), 2, seed=1), DataLoader(tokens().windows(9, 0, 8), 2, seed=1)
    assert len(same_length[0].dataset) == len(same_length[1].dataset)
    with pytest.raises(ValueError, match="state: data.(size|extra)="):
        same_length[1].load_state_dict(same_length[0].state_dict())
