"""What the parity suites in `gluon/` and `pytorch/` share: the table of differences, a time limit, and some samples."""

import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def differing(differences, fixture, peer):
    """The mark of tests that pass with gluonloader and fail with the peer; `fixture` is the class or module tested."""

    def differs(name, raises=AssertionError):
        expected = pytest.mark.xfail(strict=True, raises=raises, reason=f"{name}: {differences[name]}")
        return pytest.mark.parametrize(fixture, [pytest.param(peer, marks=expected), "gluonloader"], indirect=True)

    return differs


def allow_reruns(items, fixture, peer):
    """A test of the peer alone is tried up to three times: its workers sometimes hang or crash. Ours never may."""
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get(fixture) == peer:
            item.add_marker(pytest.mark.flaky(reruns=2))


def check_differences(differences, suite, page, section=""):
    """The tables on the page list the same differences and reasons as the suite, and each has a test."""
    text = (TESTS.parent / "docs" / page).read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert dict(rows) == differences
    assert len(rows) == len(differences)
    written = "".join(path.read_text() for path in (TESTS / suite).glob("test_parity_*.py"))
    assert set(re.findall(r'differs\(\s*"([a-z0-9-]+)"', written)) == differences.keys()


@contextlib.contextmanager
def one_minute():
    """No test takes longer: the peers hang on some errors."""

    def late(signum, frame):
        raise TimeoutError("the test took more than 60 seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Deadly:
    """Numbers; the fourth one ends its worker, the first time or always."""

    def __init__(self, end, once=None):
        self.end, self.once = end, once

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 3 and not (self.once and os.path.exists(self.once)):
            if self.once:
                open(self.once, "w").close()
            self.end()
        return index


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


class NotedList(list):
    """A list of the user's, whose constructor has another argument."""

    def __init__(self, items, note):
        super().__init__(items)
        self.note = note


class Frozen(Mapping):
    """An immutable mapping of the user's."""

    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class FrozenPair(Frozen):
    """An immutable mapping that cannot be made from a dict."""

    def __init__(self, a, b):
        super().__init__({"a": a, "b": b})
