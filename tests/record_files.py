"""Files of records for tests, and their data."""

import numpy as np

MAGIC = bytes.fromhex("0a23d7ce")

# Each case of the format: empty, each length of the padding, and the magic word at the start, inside, at the end, and
# where it does not count.
CASES = [
    b"", b"a", b"ab", b"abc", b"abcd", MAGIC, MAGIC * 2, b"abcd" + MAGIC + b"xy", b"ab" + MAGIC + b"cd", MAGIC + b"\1",
    b"abcd" + MAGIC, b"abcdefgh" + MAGIC + MAGIC + b"123" + MAGIC, MAGIC[:3], b"\0\0\0\0\0", MAGIC * 2 + b"\xff" * 9,
]  # fmt: skip


def random_records(count, seed=0, most=300):
    """Records of random bytes and lengths; every fifth has the magic word in it."""
    rng = np.random.default_rng(seed)
    records = [rng.bytes(int(rng.integers(1, most))) for _ in range(count)]
    for number in range(0, count, 5):
        cut = int(rng.integers(0, len(records[number]) + 1))
        records[number] = records[number][:cut] + MAGIC + records[number][cut:]
    return records


def write(path, records, keys=None):
    """Writes `path` (without its ending) and its index; returns the path of the file."""
    from gluonloader.records import IndexedRecordIO

    with IndexedRecordIO(f"{path}.rec", "w") as file:
        for number, record in enumerate(records):
            file.write_idx(number if keys is None else keys[number], record)
    return f"{path}.rec"
