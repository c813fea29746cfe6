"""Labels, masks and other values of each token, through packing: random programs, and what goes wrong.

Each document has a field `place`, which says where its tokens come from. So a batch alone shows whether each value is
at the place of its token, whatever the rows are. `GLUONLOADER_PROGRAMS=2000` runs so many programs.
"""

import json
import os
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from conftest import FORK, SERIAL
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gluonloader import ConcatDataset, DataLoader, IterableDataset, Ranks, StackDataset, merge_states
from gluonloader.errors import BatchifyError, TokenError
from gluonloader.text import PackedDataset, PackedStream, PackingSampler, PackRows, TokenBatchSampler, TokenDataset

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "100"))
IGNORE, SIZE = -100, 12

KINDS = {
    "labels": lambda rng, n: np.where(rng.random(n) < 0.5, IGNORE, rng.integers(0, 90, n)),
    "loss_mask": lambda rng, n: rng.random(n) < 0.5,
    "weights": lambda rng, n: rng.random(n).astype(np.float32),
    "token_type_ids": lambda rng, n: rng.integers(0, 3, n).tolist(),
    "boxes": lambda rng, n: rng.integers(0, 9, (n, 4)),
}
OF_LABELS = ("loss_mask", "weights")


def made(lengths, names, seed=0):
    """Documents of these lengths with these fields, and some that belong to no token."""
    rng = np.random.default_rng(seed)
    return [
        {"id": number, "input_ids": rng.integers(1, 90, length), "text": "a document", "tags": ["a"] * 3}
        | {name: KINDS[name](rng, length) for name in names}
        | {"place": np.stack([np.full(length, number), np.arange(length)], 1)}
        for number, length in enumerate(lengths)
    ]


def expected(document, offset, name, labels):
    """The value of a token in a batch; None: no token is predicted there."""
    if name == "labels" or (name in OF_LABELS and labels == "shift"):
        offset += labels == "shift"
        if offset == len(document["input_ids"]):
            return None
    if name == "labels" and "labels" not in document:
        is_masked = "loss_mask" in document and not document["loss_mask"][offset]
        return IGNORE if is_masked else document["input_ids"][offset]
    return document["input_ids" if name == "tokens" else name][offset]


def checked(batch, documents, labels):
    """The places of the tokens in a batch, whose other values are compared with the documents."""
    flat = {
        name: values.reshape(-1, *values.shape[2 if "segments" in batch else 1 :])
        for name, values in batch.items()
        if name not in ("cu_seqlens", "max_seqlen")
    }
    if "segments" in batch:
        used = flat["segments"] > 0
        for name, values in flat.items():
            assert (values[~used] == (IGNORE if name == "labels" else 0)).all(), name
    else:
        assert batch["cu_seqlens"][-1] == len(flat["tokens"])
        used = np.ones(len(flat["tokens"]), bool)
    for row in np.flatnonzero(used).tolist():
        number, offset = flat["place"][row].tolist()
        for name in {"tokens", "labels", *documents[number]} - {"id", "input_ids", "text", "tags", "place"}:
            value = expected(documents[number], offset, name, labels)
            if name in ("labels", *OF_LABELS) and labels == "same" and not flat["positions"][row]:
                value = None  # the model would predict it from another document
            empty = IGNORE if name == "labels" else 0
            assert np.array_equal(flat[name][row], empty if value is None else value), (name, number, offset)
    return [tuple(place) for place in flat["place"][used].tolist()]


class Program:
    """Ranks that read documents, in rows, up to the end of an epoch; after each step, other ranks go on."""

    def __init__(self, documents, kind, method, long, layout, labels, way):
        self.documents, self.kind, self.method, self.way = documents, kind, method, way
        self.long = "split" if method == "split" else long
        self.batchify = PackRows(layout, labels)
        self.labels, self.got = labels, []

    def loader(self, rank, ranks):
        arguments = {"method": self.method, "window": 5, "long": self.long}
        options = {"batchify_fn": self.batchify, "ranks": Ranks(rank, ranks, "uneven")}
        if self.kind == "stream":
            rows = PackedStream(self.documents, SIZE, field="input_ids", **arguments)
            return self.way.loader(IterableDataset(rows, num_shards=3), 2, **options)
        sampler = PackingSampler([len(one["input_ids"]) for one in self.documents], SIZE, seed=1, **arguments)
        return self.way.loader(PackedDataset(self.documents, field="input_ids"), 2, sampler=sampler, **options)

    def run(self, steps):
        """Reads so many batches in each rank, and goes on with so many ranks; returns the places of all tokens."""
        state = None
        for ranks, count in [*steps, (1, None)]:
            loaders = [self.loader(rank, ranks) for rank in range(ranks)]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
            iterators = list(map(iter, loaders))
            read = [self.read(iterator, count) for iterator in iterators]
            state = merge_states([loader.state_dict() for loader in loaders]) if len({*read}) == 1 else None
            if state is None or state["epoch"] > 0:  # it is the end of the epoch for some of them
                for iterator in iterators:
                    self.read(iterator, None)
                break
            state = json.loads(json.dumps(state))
            for loader in loaders:
                loader.close()
        return self.got

    def read(self, iterator, count):
        read = 0
        for batch in islice(iterator, count):
            self.got += checked(batch, self.documents, self.labels)
            read += 1
        return read


@settings(max_examples=PROGRAMS)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=25),
    names=st.sets(st.sampled_from(sorted(KINDS))),
    kind=st.sampled_from(["dataset", "stream"]),
    method=st.sampled_from(["best_fit", "in_order", "split"]),
    long=st.sampled_from(["split", "truncate", "drop"]),
    layout=st.sampled_from(["rows", "flat"]),
    labels=st.sampled_from(["shift", "same"]),
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3),
)
@example([1, 1, 1], set(), "stream", "best_fit", "split", "rows", "shift", [(1, 1)])
def test_each_value_stays_with_its_token(lengths, names, kind, method, long, layout, labels, steps):
    documents = made(lengths, names)
    program = Program(documents, kind, method, long, layout, labels, SERIAL)
    most = {"split": 99, "truncate": SIZE, "drop": SIZE}[program.long]
    kept = [min(length, most) if length <= SIZE or program.long != "drop" else 0 for length in lengths]
    places = [(number, offset) for number, length in enumerate(kept) for offset in range(length)]
    assert Counter(program.run(steps)) == Counter(places)


@pytest.mark.parametrize("kind", ["dataset", "stream"])
def test_workers_deliver_the_same(kind):
    documents = made([7, 0, 30, 5, 12, 3, 9] * 4, KINDS)
    one, other = (Program(documents, kind, "split", "split", "rows", "shift", way).run([]) for way in (SERIAL, FORK))
    assert one == other
    assert len(one) == sum(len(document["input_ids"]) for document in documents)


def packed(documents, size=SIZE, field="input_ids", **options):
    rows = list(PackingSampler([len(one[field]) for one in documents], size, shuffle=False, method="in_order"))
    return PackRows(**options)(PackedDataset(documents, field).__getitems__(rows))


def test_documents_without_labels_or_masks_may_stand_beside_those_with_them():
    plain, prompt = {"input_ids": [5, 6, 7]}, {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}
    masked = {"input_ids": [8, 9], "loss_mask": [0, 1]}
    batch = packed([plain, prompt, masked])
    assert batch["labels"].tolist() == [[6, 7, -100, 2, 3, -100, 9, -100, -100, -100, -100, -100]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0]]
    assert packed([plain, prompt, masked], labels="same")["labels"].tolist() == [
        [-100, 6, 7, -100, 2, 3, -100, 9, -100, -100, -100, -100]
    ]
    assert "labels" not in packed([plain, prompt], labels=None)


def test_files_of_tokens_and_of_masks_are_read_side_by_side(tmp_path):
    rng = np.random.default_rng(0)
    tokens = [rng.integers(0, 500, length) for length in (5, 9, 0, 20)]
    masks = [(document % 2).astype(np.uint8) for document in tokens]
    data = TokenDataset.write(tmp_path / "tokens", tokens)
    mask = TokenDataset.write(tmp_path / "masks", masks, dtype="uint8")
    rows = PackedDataset(StackDataset(input_ids=data, loss_mask=mask), field="input_ids")
    sampler = PackingSampler(data.lengths, SIZE, seed=0)
    with DataLoader(rows, 2, sampler=sampler, batchify_fn=PackRows(labels="same"), seed=0) as loader:
        for batch in loader:
            used = batch["segments"] > 0
            inside = batch["positions"] > 0
            assert (batch["loss_mask"] == batch["tokens"] % 2 * inside)[used].all()
            ignored = (batch["loss_mask"] == 0) | (batch["positions"] == 0)
            assert ((batch["labels"] == IGNORE) == ignored)[used].all()
    windows = StackDataset(tokens=data.windows(8), loss_mask=mask.windows(8))
    with DataLoader(windows, 2) as loader:
        assert all((batch["loss_mask"] == batch["tokens"] % 2).all() for batch in loader)


WRONG = [
    (
        {"input_ids": [1, 2, 3], "labels": [1, 2]},
        r"document 0 has 3 tokens, but 2 values in field 'labels'; each token",
    ),
    (
        {"input_ids": [1, 2, 3], "boxes": np.ones((4, 4))},
        r"document 0 has 3 tokens, but 4 values in field 'boxes'; each",
    ),
    (
        {"input_ids": [1, 2, 3], "labels": 2},
        r"document 0: field 'labels' \(int\) has not one number for each token",
    ),
    (
        {"input_ids": [1, 2, 3], "loss_mask": ["a"] * 3},
        r"document 0: field 'loss_mask' \(list\) has not one number for each",
    ),
    (
        {"input_ids": [1, 2], "weights": [[1], [1]]},
        r"document 0: field 'weights' \(shape \(2, 1\)\) has not one number",
    ),
    ({"input_ids": [1, 2], "assistant_masks": [0, 1]}, r"field 'assistant_masks', .* rename it to 'loss_mask' by a"),
    ({"input_ids": [1, 2], "completion_mask": [0, 1]}, r"document 0 has a field 'completion_mask', which would not"),
    (
        {"input_ids": [1, 2], "attention_mask": [1, 0]},
        r"document 0 has padding, where its `attention_mask` is 0; token",
    ),
    (
        {"ids": [1, 2, 3]},
        r"document 0 is a dict with the keys \['ids'\] without an array of tokens in field='input_ids'; pass",
    ),
    ({"input_ids": [1.5, 2, 3]}, r"document 0 is an array of shape \(3,\) and dtype float64, but tokens are ints"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("document", "text"), WRONG)
def test_a_field_that_does_not_fit_is_named(document, text, stream):
    def read():
        if stream:
            return next(iter(PackedStream([document], SIZE, field="input_ids")))
        return PackedDataset([document], "input_ids")[next(iter(PackingSampler([3], SIZE, seed=0)))]

    with pytest.raises(TokenError, match=text):
        read()


def test_other_arrays_of_a_tuple_have_no_names():
    with pytest.raises(TokenError, match=r"document 0: besides the tokens, field 1 of its tuple is an array; return a"):
        packed([([1, 2], [3, 4])], field=0)
    assert packed([([1, 2], 5, "text")], field=0)["tokens"][0, :3].tolist() == [1, 2, 0]


def test_a_dict_needs_the_name_of_its_tokens():
    (row,) = PackingSampler([3], SIZE, seed=0)
    with pytest.raises(
        TokenError,
        match=r"a dict with the keys \['ids'\], but tokens are ints of shape \(N,\); check `field`, e.g. field='ids'",
    ):
        PackedDataset([{"ids": [1, 2, 3]}])[row]


def test_fields_of_a_batch_that_do_not_fit_together_are_named():
    one, other = {"input_ids": [1], "kind": [1]}, {"input_ids": [2]}
    with pytest.raises(BatchifyError, match="document 1 has no field 'kind', but another one in the batch has it; add"):
        packed([one, other])
    with pytest.raises(BatchifyError, match="the values of field 'kind' have different shapes"):
        packed([one, {"input_ids": [2], "kind": [[1]]}])
    with pytest.raises(BatchifyError, match="documents have a field 'positions', as the batch has; give the field"):
        packed([{"input_ids": [1], "positions": [0]}])
    taken = {"ids": [1], "position_ids": [7]}
    assert packed([taken], field="ids")["position_ids"][0, 0] == 7
    with pytest.raises(BatchifyError, match="documents have a field 'position_ids', as the batch has; give the field"):
        packed([taken], field="ids", layout="transformers", labels="same")


def test_an_attention_mask_of_ones_is_left_out():
    # transformers would attend to all documents of a row if it got one.
    assert "attention_mask" not in packed([{"input_ids": [1, 2], "attention_mask": [1, 1]}])


def test_a_mask_of_bools_stays_one_beside_documents_without_a_mask():
    batch = packed([{"input_ids": [1, 2], "loss_mask": np.array([True, False])}, {"input_ids": [3]}], labels=None)
    assert batch["loss_mask"].dtype == bool


def test_documents_of_several_datasets_keep_their_fields():
    parts = made([5, 8], {"labels"}), made([4, 3], {"labels"}, seed=1)
    batch = packed(ConcatDataset(*parts), labels="same")
    labels = [label for part in parts for document in part for label in [IGNORE, *document["labels"].tolist()[1:]]]
    assert batch["labels"][batch["segments"] > 0].tolist() == labels


# -- tokens that do not fit, and lengths that are wrong --------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "token"), [("int16", 50_000), ("uint8", 300), ("int32", 2**40), ("uint16", -1)])
def test_a_token_that_does_not_fit_in_the_dtype_is_named(dtype, token):
    (row,) = PackingSampler([3], SIZE, seed=0)
    sample = PackedDataset([[1, token, 2]])[row]
    text = rf"document 0 has the token {token}, which does not fit in dtype={dtype}; pass another dtype to PackRows"
    with pytest.raises(BatchifyError, match=text):
        PackRows(dtype=dtype, labels=None)([sample])


def test_tokens_of_int64_and_uint64_are_not_rounded():
    token = 2**53 + 1
    documents = [{"input_ids": np.array([1, token], dtype)} for dtype in ("int64", "uint64")]
    documents[0]["labels"] = documents[0]["input_ids"]
    batch = packed(documents)
    assert batch["tokens"][batch["segments"] > 0].tolist() == [1, token] * 2
    assert batch["labels"][batch["segments"] > 0].tolist() == [token, IGNORE] * 2


def test_fields_of_int64_and_uint64_are_not_rounded():
    documents = [{"input_ids": [1, 2], "kind": np.array([1, 2**53 + 1], dtype)} for dtype in ("int64", "uint64")]
    text = "field 'kind' are int64 and uint64, and no dtype of ints holds them all; convert the field to one dtype"
    with pytest.raises(BatchifyError, match=text):
        packed(documents)
    for document in documents:
        document["kind"] = document["kind"].astype(np.uint64)
    batch = packed(documents)
    assert batch["kind"].dtype == np.uint64
    assert batch["kind"][batch["segments"] > 0].tolist() == [1, 2**53 + 1] * 2


def test_tokens_and_labels_that_are_floats_are_named():
    (row,) = PackingSampler([3], SIZE, seed=0)
    with pytest.raises(BatchifyError, match="document 0 has tokens or labels of dtype float64, but they must be ints"):
        PackRows()([PackedDataset([np.array([1.0, 2, 3])])[row]])
    with pytest.raises(BatchifyError, match="document 0 has tokens or labels of dtype float64, but they must be ints"):
        packed([{"input_ids": [1, 2, 3], "labels": [1.0, 2, 3]}])


@pytest.mark.parametrize("method", ["best_fit", "in_order", "split"])
@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("length", [4, 30])
def test_wrong_lengths_are_noticed(method, off, length):
    lengths = [5, length, 6]
    documents = [np.ones(count, int) for count in lengths]
    lengths[1] += off
    rows = list(PackingSampler(lengths, SIZE, method=method, seed=0))
    with pytest.raises(TokenError, match=r"document 1 has shape .* but the sampler expects .*pass the lengths of this"):
        PackedDataset(documents).__getitems__(rows)


def test_lengths_of_documents_that_are_truncated_may_be_too_small_but_not_too_large():
    rows = list(PackingSampler([20], SIZE, long="truncate", seed=0))
    assert PackedDataset([np.ones(30, int)]).__getitems__(rows)[0].row.cut == (0,)
    with pytest.raises(TokenError, match=r"shape \(12,\), but the sampler expects more than 12 tokens"):
        PackedDataset([np.ones(12, int)]).__getitems__(rows)


def test_lengths_of_another_number_of_documents_are_refused():
    documents = [np.ones(count, int) for count in (5, 7, 6)]
    for lengths in ([5, 7], [5, 7, 6, 1]):
        text = rf"dataset: there are 3 documents, but lengths of {len(lengths)}, which the sampler plans with; pass the"
        sampler = PackingSampler(lengths, SIZE, seed=0)
        with pytest.raises(ValueError, match=text):
            DataLoader(PackedDataset(documents), 1, sampler=sampler, ranks=(0, 2), seed=0)
        with pytest.raises(ValueError, match=text):
            DataLoader(documents, batch_sampler=TokenBatchSampler(lengths, 20, seed=0))
