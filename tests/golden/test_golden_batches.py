"""The bytes that each batchify function makes are those of earlier versions."""

import json

import pytest
from golden.batches import FILE, batches, digest

GOLDEN = json.loads(FILE.read_text())
BATCHES = dict(batches())


def test_all_golden_batches_are_tested():
    assert list(GOLDEN) == list(BATCHES)


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_those_of_earlier_versions(name):
    assert digest(BATCHES[name]) == GOLDEN[name]
