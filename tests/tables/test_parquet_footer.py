"""Parquet files that are encrypted or damaged: an error names the file, and no file ends the process."""

import base64
import random
import signal

import numpy as np
import pytest
from conftest import in_child

from gluonloader.errors import ColumnError
from gluonloader.tables import ArrowDataset
from gluonloader.tables.parquet_footer import column_chunks

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = {
    "first": np.zeros(60),  # some versions of pyarrow read no column if the first one is encrypted
    "n": pa.array([None if number % 7 == 0 else number for number in range(60)], pa.int32()),
    "flag": [number % 2 == 0 for number in range(60)],
    "x": np.arange(60) / 2,
    "text": [f"row {number}" for number in range(60)],
    "lists": [[number, number] for number in range(60)],
    "struct": [{"inner": number} for number in range(60)],
}


def encrypted(path, columns, plain_footer):
    """Writes a file in which these columns are encrypted."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        def __init__(self, config):
            super().__init__()

        def wrap_key(self, key, master):
            return base64.b64encode(key)

        def unwrap_key(self, key, master):
            return base64.b64decode(key)

    config = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"key": columns}, plaintext_footer=plain_footer
    )
    factory, table = encryption.CryptoFactory(Keys), pa.table(COLUMNS)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=20)


@pytest.mark.parametrize("name", ["n", "text", "flag", "lists"])
def test_an_encrypted_column_is_named_and_the_others_are_read(name, tmp_path):
    path = str(tmp_path / "t.parquet")
    encrypted(path, [{"lists": "lists.list.element"}.get(name, name)], plain_footer=True)

    def read():
        with pytest.raises(
            ColumnError, match=r"it is encrypted; pass columns=\[...\] without it, or pass the table of"
        ) as caught:
            ArrowDataset(path)
        samples = ArrowDataset(path, ["x"]).__getitems__([59, 8])
        return repr((caught.value.file, caught.value.column, [sample["x"].item() for sample in samples]))

    assert in_child(read) == repr((path, name, [29.5, 4.0]))  # pyarrow may end the process


def test_an_encrypted_footer_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "t.parquet"
    encrypted(path, ["n"], plain_footer=False)
    with pytest.raises(
        ColumnError, match=r"t.parquet: its footer is encrypted; pass the table of pyarrow.parquet.read_t"
    ):
        ArrowDataset(path)


def content(path, **options):
    pq.write_table(pa.table(COLUMNS), path, row_group_size=20, **options)
    return path.read_bytes()


def outcome(path):
    """The type of the error of reading a file, and whether the text names the file."""
    signal.alarm(60)
    try:
        dataset = ArrowDataset(path)
        list(dataset.__getitems__(list(range(len(dataset)))))
        for index in range(0, len(dataset), 13):
            dataset[index]
    except Exception as error:
        return type(error).__name__, str(path) in str(error)
    return "", True


def test_no_damage_ends_the_process_or_raises_an_error_of_pyarrow(tmp_path):
    path, rng = tmp_path / "t.parquet", random.Random(0)
    whole = content(path)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")

    def damaged(seed):
        data, rng = bytearray(whole), random.Random(seed)
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(start if seed % 4 else 4, len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(len(data))] if seed % 10 == 0 else data)

    def read(seeds):
        found = set()
        for seed in seeds:
            path.write_bytes(damaged(seed))
            found.add(outcome(path))
        return repr(sorted(found))

    seeds = [rng.randrange(10**9) for _ in range(150)]
    assert in_child(lambda: read(seeds)) == repr([("", True), ("ColumnError", True)])


def with_type(data, old, new):
    """The footer with another physical type of the column `n`, in its first row group."""
    place = data.rindex(old, 0, len(data) - 8)
    return data[:place] + new + data[place + len(old) :]


def test_a_column_whose_type_differs_from_the_schema_is_an_error(tmp_path):
    """For which pyarrow's statistics end the process."""
    path = tmp_path / "t.parquet"
    data = content(path)
    # ColumnMetaData begins with the field `type`, here int32, and the list of encodings.
    path.write_bytes(with_type(data, b"\x1c\x15\x02\x19", b"\x1c\x15\x12\x19"))
    assert in_child(lambda: repr(outcome(path))) == repr(("ColumnError", True))


def test_a_damaged_page_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "t.parquet"
    data = bytearray(content(path, write_page_checksum=True, use_dictionary=False, compression="none"))
    place = data.index(np.arange(5.0, 10.0, 0.5).tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ColumnError, match="row group 0 cannot be read .*hecksum") as caught:
        ArrowDataset(path)[0]
    assert (caught.value.file, caught.value.column) == (str(path), "x")
    assert ArrowDataset(path, ["n"])[1]["n"] == 1


def test_the_footer_says_how_many_nulls_there_are(tmp_path):
    for options in ({}, {"write_statistics": False}, {"compression": "none", "data_page_version": "2.0"}):
        path = tmp_path / "t.parquet"
        data = content(path, **options)
        length = int.from_bytes(data[-8:-4], "little")
        groups = column_chunks(data[-8 - length : -8])
        metadata = pq.read_metadata(path)
        assert len(groups) == metadata.num_row_groups
        for group, chunks in enumerate(groups):
            statistics = [metadata.row_group(group).column(leaf).statistics for leaf in range(metadata.num_columns)]
            assert [chunk.nulls for chunk in chunks] == [None if one is None else one.null_count for one in statistics]
            assert not any(chunk.encrypted for chunk in chunks)


@pytest.mark.parametrize(
    "footer", [b"", b"\x15", b"\x49\xfc", b"\x49" + b"\xff" * 20, b"\x49\x15" + b"\x00" * 3, b"\x4f\x00"]
)
def test_a_damaged_footer_is_a_value_error(footer):
    with pytest.raises(ValueError, match="."):
        column_chunks(footer)
