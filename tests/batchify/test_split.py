"""Split: one batch in parts, cut as MXNet cuts one; errors name the sample's row in the whole batch."""

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load_or_skip
from hypothesis import given
from hypothesis import strategies as st

import gluonloader.mxnet
from gluonloader import AsList, Dict, Group, Pad, Split, Stack
from gluonloader.errors import BatchifyError


@given(parts=st.integers(1, 8), more=st.integers(0, 40))
def test_parts_are_consecutive_and_the_first_ones_larger(parts, more):
    samples = list(range(parts + more))
    expected = [part.tolist() for part in np.array_split(samples, parts)]
    batch = Split(parts, AsList(), even_split=False)(samples)
    assert type(batch) is list
    assert batch == expected
    if len(samples) % parts == 0:
        assert Split(parts, AsList())(samples) == expected


def test_each_part_is_a_batch_of_its_own():
    first, second = Split(2)([(np.full(3, i), i) for i in range(4)])
    assert type(first) is tuple
    assert first[0].tolist() == [[0] * 3, [1] * 3]
    assert second[1].tolist() == [2, 3]
    short, long = Split(2, Pad())([[1], [2, 3], [4], [5, 6, 7]])
    assert (short.shape, long.shape) == ((2, 2), (2, 3)), "each part is padded for itself"


def test_one_part_is_a_list_too():
    (batch,) = Split(1)([1, 2])
    assert batch.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("split", "count", "text"),
    [
        (
            Split(3),
            10,
            "10 samples cannot be cut into 3 equal parts; .* last_batch='discard', or pass even_split=False",
        ),
        (Split(3), 2, "2 samples cannot be cut into 3 equal parts"),
        (Split(3, even_split=False), 2, "2 samples are too few for 3 parts; use a larger batch_size, or last_batch="),
    ],
)
def test_samples_that_cannot_be_cut_are_an_error_that_says_what_to_do(split, count, text):
    with pytest.raises(BatchifyError, match=text) as caught:
        split(list(range(count)))
    assert caught.value.row is None


@pytest.mark.parametrize("even", [True, False])
def test_errors_name_the_sample_in_the_whole_batch(even):
    samples = [{"x": (1, np.zeros(2))} for _ in range(8 + (not even))]
    samples[6] = {"x": (1, np.zeros(3))}
    for fn in (None, Dict({"x": Group(Stack(), Stack())})):
        with pytest.raises(
            BatchifyError, match=r"sample 6 of the batch at \['x'\]\[1\]: it has shape \(3,\)"
        ) as caught:
            Split(2, fn, even)(samples)
        assert (caught.value.row, caught.value.path) == (6, "['x'][1]")
        with pytest.raises(BatchifyError) as caught:
            Group(Split(2, fn, even))([(sample,) for sample in samples])
        assert (caught.value.row, caught.value.path) == (6, "[0]['x'][1]")


def test_errors_without_a_position_and_those_of_the_user_pass_as_they_are():
    for error in (BatchifyError("too much"), KeyError("mine")):

        def refuse(samples, error=error):
            raise error

        with pytest.raises(type(error)) as caught:
            Split(2, refuse)([1, 2])
        assert caught.value is error


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "num_slice=0: must be an int >= 1"),
        ((2.0,), "num_slice=2.0: must be an int >= 1"),
        ((None,), "num_slice=None"),
        ((2, 3), "batchify_fn=3: must be a function or None"),
        ((2, None, "no"), "even_split='no': must be True or False"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        Split(*arguments)


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_loader_gives_the_parts(way):
    data = [(np.full(2, i, np.float32), i) for i in range(10)]
    with way.loader(data, 4, batchify_fn=Split(2), last_batch="discard") as loader:
        batches = list(loader)
    assert [[part[1].tolist() for part in batch] for batch in batches] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert all((part[0] == part[1][:, None]).all() for batch in batches for part in batch)


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_loaders_error_names_the_sample_in_the_dataset(way):
    data = [np.zeros(3 if i == 10 else 2) for i in range(12)]
    with way.loader(data, 6, batchify_fn=Split(2)) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(BatchifyError, match=r"sample 10 \(row 4 of batch 1\): it has shape \(3,\)"):
            next(batches)


@pytest.mark.filterwarnings("ignore")
def test_parts_are_those_of_mxnet():
    gluonloader.mxnet.patch_numpy()
    mx = load_or_skip("mxnet")
    for count in range(1, 13):
        for parts in range(1, count + 1):
            theirs = mx.gluon.utils.split_data(mx.nd.arange(count), parts, even_split=False)
            ours = Split(parts, even_split=False)(list(range(count)))
            assert [part.tolist() for part in ours] == [part.asnumpy().tolist() for part in theirs]
