"""Files of records for tests: their data, and what MXNet reads in a file, each in a process that may crash."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

MAGIC = bytes.fromhex("0a23d7ce")

# Each case of the format: empty, each length of the padding, and the magic word at the start, inside, at the end, and
# where it does not count.
CASES = [
    b"", b"a", b"ab", b"abc", b"abcd", MAGIC, MAGIC * 2, b"abcd" + MAGIC + b"xy", b"ab" + MAGIC + b"cd", MAGIC + b"\1",
    b"abcd" + MAGIC, b"abcdefgh" + MAGIC + MAGIC + b"123" + MAGIC, MAGIC[:3], b"\0\0\0\0\0", MAGIC * 2 + b"\xff" * 9,
]  # fmt: skip

# Reads every record of each file by key, and prints it, or the kind of the error.
_READ_BY_MXNET = """
import json, sys, warnings
warnings.simplefilter("ignore")
from gluonloader.mxnet import patch_numpy
patch_numpy()
from mxnet.recordio import MXIndexedRecordIO

def read(file, key):
    try:
        record = file.read_idx(key)
        return record if record is None else record.hex()
    except Exception as error:
        return [type(error).__name__]

for name in sys.argv[1:]:
    try:
        file = MXIndexedRecordIO(name + ".idx", name + ".rec", "r")
        read_all = [read(file, key) for key in file.keys]
    except Exception as error:
        read_all = type(error).__name__
    print(json.dumps(read_all), flush=True)
"""


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


def read_by_mxnet(names):
    """What MXNet reads in each file: records (or [error]), the error of the file, or None if MXNet crashed."""
    results = []
    while len(results) < len(names):
        command = [sys.executable, "-c", _READ_BY_MXNET, *map(str, names[len(results) :])]
        root = str(Path(__file__).parent.parent)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": root})
        lines = done.stdout.splitlines()
        results += map(json.loads, lines)
        if len(results) < len(names):
            assert done.returncode, done.stderr
            results.append(None)  # the process died in this file
    return [
        [bytes.fromhex(record) if isinstance(record, str) else record for record in result]
        if isinstance(result, list)
        else result
        for result in results
    ]
