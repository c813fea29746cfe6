"""Changes around a resume, and of tokens in place, that would give other tokens without a message."""

import copy
import json
import pickle
from itertools import islice

import numpy as np
import pytest

from gluonloader import ConcatDataset, DataLoader, MixtureSampler, RandomSampler, WeightedSampler
from gluonloader.errors import TokenError
from gluonloader.text import (
    PackedDataset,
    PackedStream,
    PackingSampler,
    PackRows,
    TokenBatchSampler,
    TokenDataset,
)

DOCUMENTS = [np.arange(10 * number, 10 * number + 3 + number % 5) for number in range(60)]
LENGTHS = np.array([len(document) for document in DOCUMENTS])
ORDER = list(range(60))


def saved(loader):
    list(islice(loader, 3))
    return json.loads(json.dumps(loader.state_dict()))


def first_after(loader, state):
    loader.load_state_dict(state)
    return next(iter(loader))


def packing(lengths=LENGTHS, documents=DOCUMENTS, field=None, **arguments):
    sampler = PackingSampler(lengths, 16, **{"seed": 0, **arguments})
    return DataLoader(PackedDataset(documents, field), 2, sampler=sampler, batchify_fn=PackRows())


def budget(order):
    return DataLoader(DOCUMENTS, batch_sampler=TokenBatchSampler(LENGTHS, 16, sampler=order), batchify_fn=list)


def by_tokens(lengths):
    data = ConcatDataset({"web": With(lengths), "code": With(LENGTHS)})
    return DataLoader(data, 4, sampler=MixtureSampler(data, [0.6, 0.4], unit="tokens", num_samples=40, seed=0))


def weighted(weights):
    orders = [WeightedSampler(weights, replacement=False, seed=0), RandomSampler(60, 1)]
    sampler = MixtureSampler([60, 60], [0.5, 0.5], samplers=orders, num_samples=100, seed=0)
    return DataLoader(range(120), 4, sampler=sampler)


def fields(field, make):
    samples = [{"a": document, "b": -document} for document in DOCUMENTS]
    if make is packing:
        return packing(documents=samples, field=field)
    return DataLoader(PackedStream(samples, 16, field=field), 2, batchify_fn=PackRows())


class With(list):
    """Samples with the lengths of texts."""

    def __init__(self, lengths):
        super().__init__(range(len(lengths)))
        self.lengths = np.asarray(lengths)


def tokens(documents, windows):
    data = TokenDataset(documents)
    return DataLoader(data.windows(4), 2) if windows else DataLoader(data, 2, batchify_fn=list)


def table(documents):
    pa = pytest.importorskip("pyarrow")
    chunks = [[document.tolist() for document in part] for part in (documents[:20], documents[20:])]
    return tokens(pa.table({"input_ids": pa.chunked_array(chunks)}), False)


OTHER = {
    "documents in another order": lambda: (packing(sampler=ORDER), packing(sampler=ORDER[::-1])),
    "budgets in another order": lambda: (budget(ORDER), budget(np.array(ORDER[::-1]))),
    "another tokenizer in a mixture by tokens": lambda: (by_tokens(LENGTHS), by_tokens(LENGTHS * 3)),
    "weights inside of a mixture": lambda: (weighted(np.arange(60) + 1), weighted(60 - np.arange(60))),
    "another field": lambda: (fields("a", packing), fields("b", packing)),
    "another field of a stream": lambda: (fields("a", PackedStream), fields("b", PackedStream)),
    "documents that were swapped": lambda: (tokens(DOCUMENTS, False), tokens(DOCUMENTS[::-1], False)),
    "a table that was tokenized again": lambda: (table(DOCUMENTS), table([document + 1 for document in DOCUMENTS])),
    "tokens that were swapped": lambda: (tokens(DOCUMENTS, True), tokens(DOCUMENTS[::-1], True)),
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_a_state_of_other_tokens_is_refused(change):
    before, after = change()
    state = saved(before)
    with pytest.raises(ValueError, match="must be the same as in the state"):
        first_after(after, state)
    assert first_after(before, state) is not None


def test_a_file_that_was_written_again_is_noticed(tmp_path):
    TokenDataset.write(tmp_path / "corpus", DOCUMENTS, "int32")
    state = saved(tokens(str(tmp_path / "corpus"), True))
    TokenDataset.write(tmp_path / "corpus", DOCUMENTS[::-1], "int32")
    with pytest.raises(ValueError, match=r"data\.content='\w+': this TokenWindows has content="):
        tokens(str(tmp_path / "corpus"), True).load_state_dict(state)


@pytest.mark.parametrize("count", [3, 30_000])
def test_a_state_does_not_depend_on_the_chunks_of_a_table(count):
    pa = pytest.importorskip("pyarrow")
    documents = [list(range(number, number + 3)) for number in range(count)]
    chunked = pa.chunked_array([documents[:1], [], documents[1:2], documents[2:]], pa.list_(pa.int32()))
    tables = [pa.table({"input_ids": column}) for column in (chunked, chunked.combine_chunks())]
    tokens(tables[1], True).load_state_dict(tokens(tables[0], True).state_dict())


def test_sizes_that_a_state_contains_cannot_be_set_later():
    for sampler, name in ((PackingSampler(LENGTHS, 16), "size"), (TokenBatchSampler(LENGTHS, 16), "max_tokens")):
        assert getattr(sampler, name) == 16
        with pytest.raises(AttributeError):
            setattr(sampler, name, 32)


def test_numbers_of_numpy_are_the_same_numbers_in_a_state():
    first, second = (
        DataLoader(PackedStream(DOCUMENTS, number(16), window=number(8)), 2, batchify_fn=PackRows())
        for number in (int, np.int64)
    )
    second.load_state_dict(saved(first))


@pytest.mark.parametrize("copied", [lambda data: data, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_documents_of_a_list_are_read_only_as_those_of_a_file(copied):
    def double(document):
        document *= 2
        return document

    data = copied(TokenDataset(DOCUMENTS))
    for dataset in (data, data.windows(4, extra=0)):
        with pytest.raises(ValueError, match="read-only"):
            next(iter(DataLoader(dataset.transform(double), 1)))
    assert [document.tolist() for document in data] == [document.tolist() for document in DOCUMENTS]


JOINED = ConcatDataset({"web": range(90), "code": range(10)})
MIXTURES = {
    "names": MixtureSampler({"code": 90, "web": 10}, seed=0),
    "sizes": MixtureSampler([50, 50], seed=0),
    "total": MixtureSampler([45, 10], seed=0),
}


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES)
def test_a_mixture_of_other_datasets_is_refused(mixture):
    with pytest.raises(ValueError, match=r"sampler: .*pass .* as the sources of the sampler"):
        DataLoader(JOINED, 4, sampler=mixture)


def test_a_mixture_may_mix_parts_that_are_joined_from_others():
    nested = ConcatDataset(ConcatDataset(range(5), range(6)), range(7))
    for sources in ([5, 6, 7], [11, 7], [18]):
        sampler = MixtureSampler(sources, epochs=[1] * len(sources), seed=0)
        assert len(list(DataLoader(nested, 1, sampler=sampler))) == 18


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TokenDataset([np.arange(9), np.arange(9, dtype=np.uint64)]), "int64 and uint64, and no dtype of ints"),
        (lambda: MixtureSampler([5, 5], epochs=[0.01, 0.01]), "an epoch of the mixture has no sample"),
    ],
)
def test_what_has_no_right_answer_is_an_error(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_file_of_tokens_has_ints_of_this_byte_order(tmp_path):
    path = str(tmp_path / "big.bin")
    np.array([5, 6, 0, 7, 0], ">u2").tofile(path)
    with pytest.raises(TokenError, match="contains big-endian uint16.*convert the file"):
        TokenDataset(path, dtype=">u2", end=0)
    assert TokenDataset(path, dtype=">u2")[0].tolist() == [5, 6, 0, 7, 0]
    for dtype in ("float16", "bool", "S2"):
        with pytest.raises(ValueError, match="dtype=.*: tokens are ints; pass one of"):
            TokenDataset(path, dtype=dtype)


def test_a_tensor_that_numpy_cannot_read_is_not_left_out():
    torch = pytest.importorskip("torch")
    for values in (torch.ones(3, dtype=torch.bfloat16), torch.ones(3, requires_grad=True)):
        loader = packing([3], [{"input_ids": [1, 2, 3], "scores": values}], "input_ids")
        with pytest.raises(TokenError, match=r"field 'scores' is a Tensor of torch\.\w+ that NumPy cannot read"):
            next(iter(loader))
