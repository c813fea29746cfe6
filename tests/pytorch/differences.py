"""The differences between `gluonloader.torch.DataLoader` and torch's, with reasons; their tests must fail with torch.

The table in docs/migrating-from-torch.md lists the same ids and reasons for users; a test compares them.
"""

import pytest

DIFFERENCES = {
    "any-process": "?",
    "array-strides": "?",
    "conjugates": "?",
    "copies": "?",
    "data-pipes": "?",
    "drawn-ahead": "?",
    "error-classes": "?",
    "error-texts": "?",
    "free-workers": "?",
    "functions-checked": "?",
    "json-states": "?",
    "late-batches": "?",
    "late-streams": "?",
    "length-warning": "?",
    "more-arguments": "?",
    "persistent-random-numbers": "?",
    "pin-memory-warning": "?",
    "quiet-deletion": "?",
    "random-numbers": "?",
    "resize": "?",
    "sampler-errors": "?",
    "several-iterators": "?",
    "start-errors": "?",
    "states-and-workers": "?",
    "states-checked": "?",
    "states-repeat-random-numbers": "?",
    "stop-iteration": "?",
    "timeout-without-workers": "?",
    "unpicklable-batches": "?",
    "unpicklable-datasets": "?",
    "worker-death": "?",
    "worker-exit": "?",
}


def differs(name, raises=AssertionError):
    """Marks a test that passes with `gluonloader.torch` and fails with torch, which raises `raises`."""
    expected = pytest.mark.xfail(strict=True, raises=raises, reason=f"{name}: {DIFFERENCES[name]}")
    sides = [pytest.param("torch", marks=expected), "gluonloader"]
    return pytest.mark.parametrize("loader_class", sides, indirect=True)
