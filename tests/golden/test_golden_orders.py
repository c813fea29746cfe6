"""The order of each sampler is that of earlier versions: for each seed, epoch and rank, and after a resume."""

import json

import pytest
from golden.samplers import FILE, batches_of, cases, digest, loader_of

GOLDEN = json.loads(FILE.read_text())
CASES = list(cases())


def test_all_golden_orders_are_tested():
    assert list(GOLDEN) == [case for case, _, _ in CASES]


@pytest.mark.parametrize("resume", [False, True], ids=["whole", "resumed"])
@pytest.mark.parametrize(("case", "arguments", "epoch"), CASES, ids=[case for case, _, _ in CASES])
def test_orders_are_those_of_earlier_versions(case, arguments, epoch, resume):
    assert digest(batches_of(lambda: loader_of(*arguments), epoch, resume)) == GOLDEN[case]
