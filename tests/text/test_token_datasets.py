"""Documents of tokens: from every source, in files that Megatron can read, and errors for files that are damaged."""

import os
import pickle
import random
import signal
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader
from gluonloader.errors import TokenError
from gluonloader.text import TokenDataset

DOCUMENTS = [[5, 3, 8], [], [1], [2, 2, 2, 2], [7]]
DAMAGES = int(os.environ.get("GLUONLOADER_DAMAGES", 200))


def read(data):
    return [data[index].tolist() for index in range(len(data))]


@pytest.fixture
def prefix(tmp_path):
    TokenDataset.write(tmp_path / "corpus", DOCUMENTS, "uint16")
    return tmp_path / "corpus"


def write_as_megatron(prefix, boundaries=range(6), modes=()):
    """Replaces the index by one that Megatron would have written: it has no mark."""
    index = prefix.with_suffix(".idx")
    data = index.read_bytes()
    tail = np.array(boundaries, "<i8").tobytes() + np.array(modes, np.int8).tobytes()
    index.write_bytes(data[:26] + struct.pack("<Q", len(boundaries)) + data[34:94] + tail)


# -- Sources -------------------------------------------------------------------------------------------------------


def check(data, documents=DOCUMENTS):
    assert len(data) == len(documents)
    assert read(data) == documents
    assert data.lengths.tolist() == list(map(len, documents))
    assert data.num_tokens == sum(map(len, documents))
    order = [len(documents) - 1, 0, len(documents) - 1, -1]
    assert [sample.tolist() for sample in data.__getitems__(order)] == [documents[index] for index in order]
    again = pickle.loads(pickle.dumps(data))
    assert read(again) == documents


def test_a_list_of_arrays():
    check(TokenDataset(DOCUMENTS))
    data = TokenDataset([np.array(document, np.uint16) for document in DOCUMENTS])
    check(data)
    assert data.dtype == data[0].dtype == np.uint16
    assert read(TokenDataset([])) == []


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64"])
def test_written_files(tmp_path, dtype):
    data = TokenDataset.write(tmp_path / "corpus", DOCUMENTS, dtype)
    check(data)
    assert data.dtype == dtype
    for source in ("corpus", "corpus.bin", "corpus.idx"):
        check(TokenDataset(tmp_path / source))
    assert not data[0].flags.writeable
    assert data[0].base is not None  # a view of the file


def test_the_format_is_that_of_megatron(prefix):
    data = prefix.with_suffix(".idx").read_bytes()
    assert data[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack("<QBQQ", data[9:34]) == (1, 8, 5, 6)
    assert np.frombuffer(data, "<i4", 5, 34).tolist() == [3, 0, 1, 4, 1]
    assert np.frombuffer(data, "<i8", 5, 54).tolist() == [0, 6, 6, 8, 16]
    assert np.frombuffer(data, "<i8", 6, 94).tolist() == [0, 1, 2, 3, 4, 5]
    assert len(data[142:]) == 24  # the mark, which Megatron does not read
    assert np.fromfile(prefix.with_suffix(".bin"), "<u2").tolist() == sum(DOCUMENTS, [])


def test_a_file_with_modes_of_several_modalities(prefix):
    write_as_megatron(prefix, modes=[0] * 5)
    check(TokenDataset(prefix))


def test_documents_of_several_sequences_are_joined(prefix):
    write_as_megatron(prefix, [0, 2, 2, 4, 5])
    check(TokenDataset(prefix), [[5, 3, 8], [], [1, 2, 2, 2, 2], [7]])
    write_as_megatron(prefix, [0, 1, 2, 3, 3, 4, 5])  # an empty text has no sequence
    check(TokenDataset(prefix), [[5, 3, 8], [], [1], [], [2, 2, 2, 2], [7]])


def test_boundaries_and_modes_that_cannot_be_read(prefix):
    for boundaries in ([], [0], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 4, 2, 5]):
        write_as_megatron(prefix, boundaries)
        text = r"corpus\.idx: the boundaries of its documents do not fit its 5 sequences: .*; make it again"
        with pytest.raises(TokenError, match=text):
            TokenDataset(prefix)
    write_as_megatron(prefix, modes=[0, 0, 1, 0, 2])
    with pytest.raises(TokenError, match=r"sequence 2 in .*idx has the mode 1, .*; write the tokens of the texts"):
        TokenDataset(prefix)
    write_as_megatron(prefix, [0, 5])
    with prefix.with_suffix(".idx").open("r+b") as file:
        file.seek(54 + 8)
        file.write(b"\x02")
    with pytest.raises(TokenError, match="is damaged: a sequence does not end where the next one starts"):
        TokenDataset(prefix)


@pytest.mark.parametrize("name", ["flat.npy", "flat.bin"])
def test_a_flat_file_with_an_end_token(tmp_path, name):
    tokens = np.array([5, 3, 0, 0, 7, 0, 9], np.uint16)
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, tokens)
    else:
        tokens.tofile(path)
    documents = [[5, 3, 0], [0], [7, 0], [9]]
    check(TokenDataset(path, dtype="uint16", end=0), documents)
    assert (tmp_path / "flat.idx").exists()
    check(TokenDataset(path), documents)  # the index knows the dtype and the documents
    check(TokenDataset(path, dtype="uint16", end=0), documents)
    with pytest.raises(TokenError, match=r"document 0 in .*flat\.idx does not end with the token end=7; delete that"):
        TokenDataset(path, dtype="uint16", end=7)
    (tmp_path / "flat.idx").unlink()
    with pytest.raises(TokenError, match=r"does not contain the token end=70; pass the right end and dtype"):
        TokenDataset(path, dtype="uint16", end=70)
    assert not (tmp_path / "flat.idx").exists()


def test_a_flat_file_without_an_end_token_is_one_document(tmp_path):
    np.save(tmp_path / "flat.npy", np.arange(10))
    data = TokenDataset(tmp_path / "flat.npy")
    check(data, [list(range(10))])
    assert not (tmp_path / "flat.idx").exists()
    np.save(tmp_path / "empty.npy", np.arange(0))
    assert len(TokenDataset(tmp_path / "empty.npy")) == 0


def test_the_index_may_lie_elsewhere(tmp_path):
    folder = tmp_path / "tokens"
    folder.mkdir()
    np.save(folder / "flat.npy", np.array([1, 0, 2, 0]))
    index = tmp_path / "elsewhere.idx"
    check(TokenDataset(folder / "flat.npy", end=0, index=index), [[1, 0], [2, 0]])
    check(TokenDataset(folder / "flat.npy", index=index), [[1, 0], [2, 0]])
    assert os.listdir(folder) == ["flat.npy"]


def test_tables():
    pa = pytest.importorskip("pyarrow")
    column = pa.chunked_array([[[5, 3, 8], []], [[1]], [[2, 2, 2, 2], [7]]], pa.list_(pa.int32()))
    table = pa.table({"input_ids": column, "text": ["a"] * 5})
    data = TokenDataset(table)
    check(data)
    sliced = TokenDataset(table.slice(1, 3))
    check(sliced, DOCUMENTS[1:4])
    check(TokenDataset(table.rename_columns(["ids", "text"]), column="ids"))
    with pytest.raises(ValueError, match="column='ids': the columns are 'input_ids', 'text'"):
        TokenDataset(table, column="ids")
    with pytest.raises(
        ValueError, match="column='text': it contains string, but tokens are lists of ints; tokenize texts"
    ):
        TokenDataset(table, column="text")
    floats = pa.table({"input_ids": [[1.5]]})
    with pytest.raises(ValueError, match="it contains list<.*double>, but tokens are lists of ints; cast the column"):
        TokenDataset(floats)
    nulls = pa.table({"input_ids": pa.array([[1], None], pa.list_(pa.int32()))})
    with pytest.raises(ValueError, match="it contains a null"):
        TokenDataset(nulls)
    in_another_row = pa.table({"input_ids": pa.array([[None], [4, 6]], pa.list_(pa.int32()))})
    check(TokenDataset(in_another_row.slice(1)), [[4, 6]])


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    hugging = datasets.Dataset.from_dict({"input_ids": DOCUMENTS})
    check(TokenDataset(hugging))
    shuffled = hugging.select([3, 1])
    with pytest.raises(ValueError, match=r"call source\.flatten_indices\(\) first"):
        TokenDataset(shuffled)
    check(TokenDataset(shuffled.flatten_indices()), [DOCUMENTS[3], DOCUMENTS[1]])
    for other in (hugging.to_iterable_dataset(), datasets.DatasetDict(train=hugging), *hugging.data.to_batches()):
        with pytest.raises(ValueError, match=f"source='{type(other).__name__}': it is no table; pass a single dataset"):
            TokenDataset(other)


# -- Windows -------------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    parts=st.integers(1, 3),
    size=st.integers(1, 7),
    extra=st.integers(0, 2),
    stride=st.none() | st.integers(1, 9),
)
def test_windows(lengths, parts, size, extra, stride):
    tokens = np.arange(sum(lengths))
    documents = [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
    data = TokenDataset(documents)
    if parts > 1:
        pa = pytest.importorskip("pyarrow")
        cuts = np.linspace(0, len(documents), parts + 1).astype(int)
        chunks = [documents[first:last] for first, last in zip(cuts[:-1], cuts[1:], strict=True)]
        data = TokenDataset(pa.table({"input_ids": pa.chunked_array(chunks, pa.list_(pa.int64()))}))
    windows, step = data.windows(size, extra, stride), stride or size
    starts = range(0, max(0, len(tokens) - size - extra + 1), step)
    assert len(windows) == len(starts)
    expected = [tokens[start : start + size + extra].tolist() for start in starts]
    assert [window.tolist() for window in windows] == expected
    if expected:
        assert np.array_equal(windows.__getitems__([len(windows) - 1, 0]).columns, [expected[-1], expected[0]])


def test_a_loader_reads_windows(prefix):
    with DataLoader(TokenDataset(prefix).windows(3), 2, num_workers=1, start_method="fork") as loader:
        batches = [batch.tolist() for batch in loader]
        assert batches == [[[5, 3, 8, 1], [1, 2, 2, 2]]]
    with pytest.raises(IndexError, match="index 2 is out of range for 2 samples"):
        TokenDataset(prefix).windows(3)[2]


# -- Mistakes and damages ------------------------------------------------------------------------------------------


def test_mistakes(tmp_path, prefix):
    cases = [
        (("nowhere",), {}, r"there is no file .*nowhere\.bin"),
        (([[1.5]],), {}, r"source\[0\] has shape \(1,\) and dtype float64"),
        (([[[1]]],), {}, r"source\[0\] has shape \(1, 1\)"),
        ((["a text"],), {}, r"source\[0\] is text; tokenize texts by `python -m gluonloader tokens make`"),
        (([{"ids": [1]}],), {}, r"document 0 is a dict with the keys \['ids'\]; pass only the tokens"),
        ((__file__,), {}, r"it is no \.bin or \.npy file; .* e\.g\. pyarrow\.parquet\.read_table\(path\)"),
        ((3,), {}, "source=3: pass a list of arrays of ints, a path"),
        (([[1]],), {"end": 0}, "dtype, end and index are only for a source that is the path of a file"),
        (([[1]],), {"vocabulary": 0}, "vocabulary=0: must be an int >= 1"),
    ]
    for arguments, options, text in cases:
        with pytest.raises(ValueError, match=text):
            TokenDataset(*arguments, **options)
    np.arange(4, dtype=np.uint16).tofile(tmp_path / "flat.bin")
    with pytest.raises(ValueError, match="so pass the dtype of the tokens, e.g. dtype='uint16'"):
        TokenDataset(tmp_path / "flat.bin")
    with pytest.raises(ValueError, match="pass end=..., the token that ends a document, to make it"):
        TokenDataset(tmp_path / "flat.bin", dtype="uint16", index=tmp_path / "other.idx")
    np.arange(4, dtype=np.uint32).tofile(tmp_path / "wide.bin")
    with pytest.raises(TokenError, match=r"wide\.bin contains uint32, but an index can be made only for uint8, int8"):
        TokenDataset(tmp_path / "wide.bin", dtype="uint32", end=0)
    with pytest.raises(TokenError, match="is for tokens of uint16, not of int32"):
        TokenDataset(prefix, dtype="int32")
    with pytest.raises(ValueError, match="dtype='float32': must be one of uint8, int8"):
        TokenDataset.write(tmp_path / "x", [[1]], "float32")
    with pytest.raises(TokenError, match="document 1 has the token 256, which does not fit in uint8"):
        TokenDataset.write(tmp_path / "x", [[1], [256]], "uint8")
    assert not (tmp_path / "x.idx").exists()
    with pytest.raises(TokenError, match=r"document 0 has shape \(1, 1\) and dtype int64"):
        TokenDataset.write(tmp_path / "x", [[[1]]])
    with pytest.raises(TokenError, match=r"document 0 is a dict with the keys \['a'\]; pass only the tokens"):
        TokenDataset.write(tmp_path / "x", [{"a": [1]}])  # as the rows of a dataset of Hugging Face


@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_files_are_named_with_or_without_an_ending(tmp_path, ending):
    data = TokenDataset.write(tmp_path / f"my.corpus{ending}", [[1, 2], [3]])
    assert sorted(os.listdir(tmp_path)) == ["my.corpus.bin", "my.corpus.idx"]
    assert [tokens.tolist() for tokens in data] == [[1, 2], [3]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    np.save(tmp_path / "flat.npy", np.array([1, 0]))
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match=r"index=None: .*flat\.idx cannot be written .*pass index=\.\.\."):
        TokenDataset(tmp_path / "flat.npy", end=0)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("written", "read_as", "right"),
    [("uint16", "int32", "narrower, such as uint16"), ("uint16", "int64", "narrower"), ("int32", "int64", "narrower"),
     ("int32", "uint16", "wider, such as int32"), ("int32", "int16", "wider"), ("int64", "int32", "wider")],
)  # fmt: skip
@pytest.mark.parametrize("end", [None, 0])
def test_a_flat_file_that_is_read_with_another_dtype(tmp_path, written, read_as, right, end):
    path = tmp_path / "tokens.bin"
    tokens = np.random.default_rng(0).zipf(1.2, 1000) % (30_000 if read_as == "int16" else 60_000)
    np.concatenate([tokens, [0, 0, 0, 0]]).astype(written).tofile(path)
    for _ in range(2):  # with `end`, the second time with an index
        with pytest.warns(RuntimeWarning, match=rf"{right}.*: pass dtype=.*delete the \.idx"):
            TokenDataset(path, dtype=read_as, end=end)
    (tmp_path / "tokens.idx").unlink(missing_ok=True)
    TokenDataset(path, dtype=written, end=end)  # without a warning, which would be an error here


def test_no_dtype_is_doubted_without_a_reason(tmp_path):
    path = tmp_path / "tokens.bin"
    rng = np.random.default_rng(0)
    cases = [
        ("uint8", rng.integers(0, 256, 100)),
        ("uint16", rng.integers(0, 16, 100)),  # e.g. the letters of genomes
        ("uint16", np.zeros(100)),
        ("int32", rng.integers(0, 1_000_000, 100)),
        ("int32", np.where(rng.random(100) < 0.9, -100, 5)),  # labels
        ("int64", np.full(3, 1 << 40)),  # too few to judge
    ]
    for dtype, tokens in cases:
        tokens.astype(dtype).tofile(path)
        TokenDataset(path, dtype=dtype)


def test_tokens_outside_of_the_vocabulary(prefix):
    data = TokenDataset(prefix, vocabulary=8)
    assert data[2].tolist() == [1]
    with pytest.raises(TokenError, match=r"corpus: token 2 of document 0 is 8, but the vocabulary has 8 tokens"):
        data[0]
    for extra in (0, 1):
        windows = data.windows(2, extra)
        assert windows[2].tolist()[:2] == [2, 2]
        with pytest.raises(TokenError, match="token 0 of the window at token 2 is 8, but the vocabulary has 8 tokens"):
            windows.__getitems__([2, 1])


def test_files_that_were_cut(prefix):
    tokens, index = prefix.with_suffix(".bin"), prefix.with_suffix(".idx")
    whole = tokens.read_bytes(), index.read_bytes()
    tokens.write_bytes(whole[0][:-2])
    with pytest.raises(TokenError, match=r"has 16 bytes of tokens, but the last document in .* ends at byte 18"):
        TokenDataset(prefix)
    tokens.write_bytes(whole[0])
    for cut in (0, 20, 100, 141):
        index.write_bytes(whole[1][:cut])
        with pytest.raises(TokenError, match=r"corpus\.idx"):
            TokenDataset(prefix)
    np.save(prefix.with_suffix(".npy"), np.arange(100))
    data = prefix.with_suffix(".npy").read_bytes()
    index.unlink()
    for damaged in (
        data[:-8],
        data + b"12345678",
        data.replace(b"(100,)", b"(100, "),
        data.replace(b"(100,)", b"(0100)"),
    ):
        prefix.with_suffix(".npy").write_bytes(damaged)
        with pytest.raises(TokenError, match="cannot be mapped into memory"):
            TokenDataset(prefix.with_suffix(".npy"))
    tokens.write_bytes(whole[0] + b"x")
    with pytest.raises(TokenError, match="its 19 bytes are no whole number of uint16"):
        TokenDataset(tokens, dtype="uint16")


def test_arrays_that_are_no_tokens(tmp_path):
    for array in (np.zeros((2, 2), int), np.zeros(3)):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(TokenError, match="tokens are a single row of ints"):
            TokenDataset(tmp_path / "x.npy")


@pytest.mark.soak
def test_a_flipped_bit_in_the_index_is_an_error_or_changes_nothing(tmp_path):
    rng = random.Random(0)
    documents = [[rng.randrange(1000) for _ in range(rng.randrange(9))] for _ in range(50)]
    TokenDataset.write(tmp_path / "corpus", documents, "uint16")
    index = tmp_path / "corpus.idx"
    whole = index.read_bytes()
    errors = 0
    for _ in range(DAMAGES):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        index.write_bytes(data)
        try:
            found = TokenDataset(tmp_path / "corpus")
        except TokenError:
            errors += 1
            continue
        for number in range(min(len(found), len(documents))):
            try:
                assert found[number].tolist() == documents[number]
            except TokenError:
                errors += 1
    assert errors


@pytest.mark.parametrize("size", [3, 100_000])
def test_an_old_index_beside_new_tokens_of_the_same_size(tmp_path, size):
    old, new = tmp_path / "old", tmp_path / "new"
    TokenDataset.write(old, [np.arange(size), [1, 2]], "int32")
    TokenDataset.write(new, [[1, 2], np.arange(size)], "int32")
    new.with_suffix(".idx").write_bytes(old.with_suffix(".idx").read_bytes())
    with pytest.raises(TokenError, match=r"new\.idx was made for other tokens .* copy both again"):
        TokenDataset(new)


def test_an_old_index_of_a_flat_file_with_end_tokens(tmp_path):
    path = tmp_path / "flat.npy"
    np.save(path, np.array([5, 0, 3, 3, 0], np.uint16))
    check(TokenDataset(path, end=0), [[5, 0], [3, 3, 0]])
    np.save(path, np.array([5, 3, 0, 3, 0], np.uint16))
    for end in (None, 0):
        with pytest.raises(TokenError, match=r"delete it and pass end=\.\.\. again"):
            TokenDataset(path, end=end)


def test_an_old_index_of_megatron_is_noticed_if_the_end_token_is_known(prefix):
    TokenDataset.write(prefix, [[4, 0], [], [5, 5, 0], [6, 6, 0], [7]])
    write_as_megatron(prefix)
    assert read(TokenDataset(prefix, end=0)) == [[4, 0], [], [5, 5, 0], [6, 6, 0], [7]]
    np.array([4, 0, 5, 5, 5, 0, 6, 0, 7], np.uint16).tofile(prefix.with_suffix(".bin"))
    with pytest.raises(TokenError, match=r"document 2 in .*corpus\.idx does not end with the token end=0; delete"):
        TokenDataset(prefix, end=0)


def test_a_write_that_is_killed_between_two_files_is_noticed(prefix, monkeypatch):
    """The worst moment: one file is new, the other one is old, has the same size, and is by Megatron."""
    write_as_megatron(prefix)
    replace = os.replace

    def replace_first(new, old):
        monkeypatch.setattr(os, "replace", lambda new, old: None)
        replace(new, old)

    monkeypatch.setattr(os, "replace", replace_first)
    with pytest.raises(TokenError, match="was made for other tokens"):
        TokenDataset.write(prefix, [[9, 9, 9, 9, 9, 9, 9], [8, 8]])


@pytest.mark.parametrize("others", [DOCUMENTS[:2], [[token + 1 for token in document] for document in DOCUMENTS]])
def test_a_dataset_notices_that_its_file_was_replaced(prefix, others):
    pickled = pickle.dumps(TokenDataset(prefix))
    assert read(pickle.loads(pickled)) == DOCUMENTS
    TokenDataset.write(prefix, others)
    with pytest.raises(ValueError, match="it has other tokens than when this dataset was opened; do not"):
        pickle.loads(pickled)


# -- Files that are written ----------------------------------------------------------------------------------------


def test_a_file_in_use_is_written_again(tmp_path, prefix):
    data = TokenDataset(prefix)
    (tmp_path / "link.bin").symlink_to(prefix.with_suffix(".bin"))
    TokenDataset.write(prefix, (document + 1 for document in TokenDataset(prefix) if len(document)))
    assert read(data) == DOCUMENTS
    assert read(TokenDataset(prefix)) == [[token + 1 for token in document] for document in DOCUMENTS if document]
    assert sorted(os.listdir(tmp_path)) == ["corpus.bin", "corpus.idx", "link.bin"]
    TokenDataset.write(tmp_path / "link", [[1]])
    assert (tmp_path / "link.bin").is_symlink()
    assert np.fromfile(prefix.with_suffix(".bin"), "<u2").tolist() == [1]


def test_an_interrupted_write_leaves_the_old_files(tmp_path, prefix):
    def documents(error):
        yield [1, 2]
        raise error

    for error in (KeyboardInterrupt(), ValueError("no document")):
        with pytest.raises(type(error)):
            TokenDataset.write(prefix, documents(error))
    with pytest.raises(TokenError, match="document 1 has the token 70000"):
        TokenDataset.write(prefix, [[1], [70_000]])
    check(TokenDataset(prefix))
    assert sorted(os.listdir(tmp_path)) == ["corpus.bin", "corpus.idx"]


def test_an_interrupt_while_files_are_replaced_waits_until_all_are_new(prefix, monkeypatch):
    replace = os.replace

    def replace_and_interrupt(new, old):
        signal.raise_signal(signal.SIGINT)
        replace(new, old)

    monkeypatch.setattr(os, "replace", replace_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        TokenDataset.write(prefix, [[1, 2]])
    check(TokenDataset(prefix), [[1, 2]])
