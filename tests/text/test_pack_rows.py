"""Batches of packed rows, compared with a naive loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader, Subset
from gluonloader.errors import BatchifyError, TokenError
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset

METHODS = st.sampled_from(["best_fit", "in_order", "split"])
LENGTHS = st.lists(st.sampled_from([0, 1, 5, 11, 12, 13, 40]) | st.integers(0, 30), min_size=1, max_size=30)


def naive(documents, rows, layout, labels, pad, ignore):
    """The arrays of a batch, one token after another."""
    names = ("tokens", "positions", "segments", "labels")
    batch, ends = {name: [] for name in names}, [0]
    for row in rows:
        columns = {name: [] for name in names}

        def fill(count, columns=columns):
            for name, value in zip(names, (pad, 0, 0, ignore), strict=True):
                columns[name] += [value] * count

        for number, (document, start, stop) in enumerate(zip(row.documents, row.starts, row.stops, strict=True), 1):
            tokens = documents[document]
            for position, offset in enumerate(range(start, stop)):
                shifted = tokens[offset + 1] if offset + 1 < len(tokens) else ignore
                same = tokens[offset] if position else ignore  # nothing in its document comes before the first one
                label = same if labels == "same" else shifted
                for name, value in zip(names, (tokens[offset], position, number, label), strict=True):
                    columns[name].append(value)
            fill(-(stop - start) % row.align)
            ends.append(ends[-1] + stop - start + -(stop - start) % row.align)
        if layout == "rows":
            fill(row.size - len(columns["tokens"]))
        for name in names:
            batch[name].append(columns[name])
    if layout == "flat":
        batch = {name: sum(values, []) for name, values in batch.items() if name != "segments"}
        batch |= {"cu_seqlens": ends, "max_seqlen": int(np.diff(ends).max())}
    if labels is None:
        del batch["labels"]
    return batch


@given(
    lengths=LENGTHS,
    method=METHODS,
    long=st.sampled_from(["split", "truncate", "drop"]),
    align=st.sampled_from([1, 1, 2, 4]),
    layout=st.sampled_from(["rows", "flat"]),
    labels=st.sampled_from(["shift", "same", None]),
    dtype=st.sampled_from(["int32", "int64"]),
)
def test_batches_are_those_of_a_naive_loop(lengths, method, long, align, layout, labels, dtype):
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 1000, length).tolist() for length in lengths]
    plain = {"long": "split", "align": 1} if method == "split" else {"long": long, "align": align}
    rows = list(PackingSampler(lengths, 12, method=method, seed=0, **plain))
    if not rows:
        return
    batch = PackRows(layout, labels, pad=-1, ignore=-7, dtype=dtype)(PackedDataset(documents).__getitems__(rows))
    expected = naive(documents, rows, layout, labels, -1, -7)
    assert {name: value if isinstance(value, int) else value.tolist() for name, value in batch.items()} == expected
    kinds = {name: value.dtype.name for name, value in batch.items() if name != "max_seqlen"}
    whole = ("tokens", "labels") if labels else ("tokens",)
    assert {name: kinds.pop(name) for name in whole} == dict.fromkeys(whole, dtype)
    assert set(kinds.values()) == {"int32"}


def test_positions_of_documents_that_were_cut_may_go_on():
    documents = [np.arange(30), np.arange(5)]
    rows = list(PackingSampler([30, 5], 12, method="split", shuffle=False))
    for layout in ("rows", "flat"):
        batch = PackRows(layout, positions="document")(PackedDataset(documents).__getitems__(rows))
        assert batch["positions"].reshape(-1)[:35].tolist() == [*range(30), *range(5)]
        assert batch["positions"].dtype == np.int32


def test_the_layout_of_transformers_has_other_names_and_one_row():
    documents = [np.arange(1, length) for length in (6, 4, 9)]
    rows = list(PackingSampler([5, 3, 8], 8, shuffle=False, align=2))
    samples = PackedDataset(documents).__getitems__(rows)
    flat, batch = PackRows("flat", "same")(samples), PackRows("transformers", "same")(samples)
    names = {"tokens": "input_ids", "positions": "position_ids", "labels": "labels"}
    for name, other in names.items():
        assert batch.pop(other).tolist() == [flat.pop(name).tolist()]
    assert batch.pop("max_length_q") == batch.pop("max_length_k") == flat.pop("max_seqlen")
    ends = flat.pop("cu_seqlens").tolist()
    assert batch.pop("cu_seq_lens_q").tolist() == batch.pop("cu_seq_lens_k").tolist() == ends
    assert (flat, batch) == ({}, {})


def test_mistakes():
    cases = [
        ({"layout": "columns"}, "layout='columns': must be 'rows', 'flat' or 'transformers'"),
        (
            {"layout": "transformers"},
            "labels='shift': the models of transformers shift labels themselves",
        ),
        ({"positions": "row"}, "positions='row': must be 'piece' or 'document'"),
        ({"pad": 300, "dtype": "int8"}, "pad=300: does not fit in dtype=int8"),
        ({"labels": "next"}, "labels='next': must be 'shift', 'same' or None"),
        ({"dtype": "float32"}, "dtype='float32': must be a dtype of ints"),
        ({"dtype": "uint16"}, "dtype='uint16': must be a dtype of ints that has room for `ignore`"),
        ({"pad": None}, "pad=None: must be an int"),
    ]
    for arguments, text in cases:
        with pytest.raises(ValueError, match=text):
            PackRows(**arguments)
    with pytest.raises(BatchifyError, match="it is a ndarray, but PackRows joins the samples of a PackedDataset"):
        PackRows()([np.arange(3)])


def test_a_dataset_of_rows_needs_a_packing_sampler():
    rows = PackedDataset([[1, 2]])
    with pytest.raises(TypeError, match=r"has no length.*pass sampler=PackingSampler\(lengths, size\)"):
        len(rows)
    with pytest.raises(TypeError, match=r"has rows, not samples with the index 0; pass sampler=PackingSampler"):
        rows[0]
    (row,) = PackingSampler([5], 8, seed=0)
    with pytest.raises(TokenError, match=r"document 0 has shape \(2,\), but the sampler expects 5 tokens"):
        rows[row]
    assert repr(row) == "PackedRow(0[0:5]; size=8)"


@pytest.mark.parametrize("make", [list, TokenDataset, lambda documents: Subset(documents, range(2))])
def test_a_packing_sampler_needs_a_dataset_of_rows(make):
    documents = make([np.arange(3), np.arange(4)])
    with pytest.raises(
        ValueError, match=r"yields rows of several documents; pass PackedDataset\(dataset\) to the loader"
    ):
        DataLoader(documents, 2, sampler=PackingSampler([3, 4], 12), batchify_fn=PackRows())


def test_a_loader_of_rows_without_pack_rows_is_an_error():
    documents = [np.arange(length) for length in (3, 4, 5, 4)]
    loader = DataLoader(PackedDataset(documents), 2, sampler=PackingSampler(list(map(len, documents)), 12))
    with pytest.raises(BatchifyError, match=r"it is a row of several documents; pass batchify_fn=PackRows\(\)"):
        next(iter(loader))
