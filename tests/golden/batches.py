"""Batchify functions with samples of many kinds; `python tests/golden/batches.py` writes batches.json."""

import hashlib
import json
from collections import namedtuple
from pathlib import Path

import numpy as np

from gluonloader import Append, AsList, DataLoader, Dict, Group, Pad, Split, Stack, default_batchify
from gluonloader.batchify import NamedTuple
from gluonloader.text import PackedDataset, PackingSampler, PackRows
from gluonloader.tree import leaves

FILE = Path(__file__).with_name("batches.json")

Pair = namedtuple("Pair", "data label")


def arrays(*shape, dtype="float32", count=5):
    rng = np.random.default_rng(1)
    return [(100 * rng.random(shape)).astype(dtype) for _ in range(count)]


def ragged(dtype="float32", rank=1):
    rng = np.random.default_rng(2)
    return [(100 * rng.random((n + 1, *range(2, rank + 1)))).astype(dtype) for n in (3, 0, 5, 2, 5)]


NUMBERS = [3, 1, 4, 1, 5]
PAIRS = list(zip(arrays(4, 3), NUMBERS, strict=True))
DICTS = [{"x": x, "y": {"z": y}} for x, y in PAIRS]

BATCHES = {
    "numbers": (default_batchify, NUMBERS),
    "floats": (default_batchify, [0.5, 1.0, -2.0]),
    "numbers and floats": (default_batchify, [1, 0.5]),
    "booleans": (default_batchify, [True, False]),
    "numpy scalars": (default_batchify, list(np.arange(3, dtype=np.uint8))),
    "texts": (default_batchify, ["a", "bc"]),
    "bytes": (default_batchify, [b"a", b"bc"]),
    "arrays": (default_batchify, arrays(4, 3)),
    "arrays of big-endian numbers": (default_batchify, arrays(4, 3, dtype=">i4")),
    "arrays of float16": (default_batchify, arrays(2, dtype="float16")),
    "arrays of different dtypes": (default_batchify, [*arrays(2), *arrays(2, dtype="float64")]),
    "arrays that are not contiguous": (default_batchify, [array.T for array in arrays(4, 3)]),
    "arrays without elements": (default_batchify, arrays(0, 3)),
    "times": (default_batchify, list(np.array(["2026-11-26", "1970-01-01"], "datetime64[s]"))),
    "pairs": (default_batchify, PAIRS),
    "lists": (default_batchify, [list(pair) for pair in PAIRS]),
    "dicts": (default_batchify, DICTS),
    "named tuples": (default_batchify, [Pair(*pair) for pair in PAIRS]),
    "Stack": (Stack(), arrays(4, 3)),
    "Pad": (Pad(), ragged()),
    "Pad, with a value and a dtype": (Pad(val=-1, dtype="int64"), ragged("int32")),
    "Pad, axis 1": (Pad(axis=1), [array.T for array in ragged(rank=2)]),
    "Pad, with lengths": (Pad(ret_length=True), ragged()),
    "Pad, to a multiple": (Pad(round_to=4), ragged()),
    "Group": (Group(Stack(), Stack()), PAIRS),
    "Group of Pad": (Group(Pad(), Stack()), list(zip(ragged(), NUMBERS, strict=True))),
    "Pad, with a mask": (Pad(ret_length=True, mask=True), ragged(rank=2)),
    "Append": (Append(), ragged()),
    "Append, without an axis": (Append(expand=False), ragged()),
    "AsList": (AsList(), ragged()),
    "Dict": (Dict({"x": Stack(), "y": AsList()}), DICTS),
    "NamedTuple": (NamedTuple(Pair, [Stack(), Stack()]), [Pair(*pair) for pair in PAIRS]),
    "Split": (Split(5), PAIRS),
    "Split of Pad": (Split(2, Pad(), even_split=False), ragged()),
}

DOCUMENTS = [np.arange(n) + 10 * n for n in (3, 9, 1, 16, 7, 4, 12, 5)]
PACKED = {
    "PackRows": PackRows(),
    "PackRows, flat": PackRows("flat"),
    "PackRows, same labels": PackRows(labels="same", pad=7, dtype="int32"),
    "PackRows, no labels": PackRows(labels=None),
}


def digest(batch):
    """The type of a batch, and for each of its leaves the path, type, dtype, shape and a hash of its bytes."""
    found = [type(batch).__name__]
    for path, leaf in leaves(batch):
        array = np.asarray(leaf)
        name = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        found.append(f"{path} {type(leaf).__name__} {array.dtype.str} {array.shape} {name}")
    return found


def batches():
    for name, (batchify, samples) in BATCHES.items():
        yield name, batchify(samples)
    for name, batchify in PACKED.items():
        rows = PackingSampler([len(document) for document in DOCUMENTS], 16, seed=0)
        with DataLoader(PackedDataset(DOCUMENTS), 8, sampler=rows, batchify_fn=batchify) as loader:
            (batch,) = loader
        yield name, batch


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(digest(batch), indent=2)}" for name, batch in batches())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
