"""What the parity suites in `gluon/` and `pytorch/` share: the table of differences, a time limit, and some samples."""

import multiprocessing
import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent


def differing(differences, fixture, peer):
    """The mark of tests that pass with gluonloader and fail with the peer; `fixture` is the class or module tested."""

    def differs(name, raises=AssertionError):
        expected = pytest.mark.xfail(strict=True, raises=raises, reason=f"{name}: {differences[name]}")
        return pytest.mark.parametrize(fixture, [pytest.param(peer, marks=expected), "gluonloader"], indirect=True)

    return differs


OTHER = object()


@dataclass
class Case:
    """One call whose result differs, and is known for both sides; an error counts as the name of its type.

    Attributes:
        name: of the difference, on the page.
        run: a function of the class or module under test.
        theirs: the peer's result; OTHER: any other one than ours.
        ours: gluonloader's result.
    """

    name: str
    run: Callable[[Any], Any]
    theirs: Any
    ours: Any


def outcome(function, *arguments):
    """What a call returns, or the name of the type of the error that it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__


def error_names(text, make, kind=ValueError):
    """Whether a call raises an error of a type that names something; other errors are raised."""
    try:
        make()
    except kind as error:
        return text in str(error)
    return None


def differing_cases(differences, fixture, peer):
    """The mark of a test with the arguments `fixture`, `case` and `wanted`, for a table of cases."""

    def cases(*table):
        assert all(case.name in differences and case.theirs != case.ours for case in table)
        rows = [(peer, case, case.theirs) for case in table] + [("gluonloader", case, case.ours) for case in table]
        ids = [f"{case.name}-{side}" for side, case, _ in rows]
        return pytest.mark.parametrize((fixture, "case", "wanted"), rows, ids=ids, indirect=[fixture])

    return cases


def check_case(side, case, wanted):
    """Runs a case with one side."""
    found = outcome(case.run, side)
    assert found != case.ours if wanted is OTHER else found == wanted


def mark(items, folder, fixture, peer, warnings, warnings_of_peer=()):
    """Ignores warnings in the tests of a folder, and tries a test of the peer alone up to three times.

    The workers of the peers sometimes hang or crash. Ours never may.
    """
    for item in items:
        if not str(item.path).startswith(folder):
            continue
        of_peer = getattr(item, "callspec", None) and item.callspec.params.get(fixture) == peer
        if of_peer:
            item.add_marker(pytest.mark.flaky(reruns=2))
        for warning in [*warnings, *(warnings_of_peer if of_peer else ())]:
            item.add_marker(pytest.mark.filterwarnings(warning))


def differences_on(page, section=""):
    """The name of each difference in the tables of a page, and its reason."""
    text = (TESTS.parent / "docs" / page).read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def check_that_each_has_a_test(differences, suite):
    written = "".join(path.read_text() for path in (TESTS / suite).glob("test_parity_*.py"))
    assert set(re.findall(r'\b(?:differs|Case)\(\s*"([a-z0-9-]+)"', written)) == differences.keys()


class TooLong(BaseException):
    """A test hangs. It is no Exception, so it is never the result of a case."""


@pytest.fixture(autouse=True)
def bounded():
    """No test takes longer: the peers hang on some errors, and if a loader with work in flight is deleted."""

    def late(signum, frame):
        raise TooLong("the test took more than 150 seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(150)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Spoiled:
    """Numbers, and one that is an error."""

    def __init__(self, length, bad, error):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error
        return index


class Custom(Exception):
    """An error class of the user's."""


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


def leave():
    os._exit(1)


class Stuck:
    """Numbers; the second one takes too long."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 1:
            time.sleep(self.seconds)
        return index


def late(batches, kind=TimeoutError):
    """The first batch, whether the error of the second one is a timeout that shows where it is stuck, and the rest."""
    first = shown(next(batches))
    where = error_names("in __getitem__", lambda: next(batches), kind)
    return first, where, until_the_end(batches)


class Drawn:
    """Batches of one index, and how many of them were drawn."""

    def __init__(self, length):
        self.length, self.drawn = length, 0

    def __iter__(self):
        for i in range(self.length):
            self.drawn += 1
            yield [i]

    def __len__(self):
        return self.length


def in_a_daemonic_process(function):
    """What a function returns or raises in a forked daemonic process."""

    def daemon():
        warnings.simplefilter("ignore")
        writer.send(outcome(function))

    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    context.Process(target=daemon, daemon=True).start()
    return reader.recv()


def shown(batch):
    """A batch in lists and numbers."""
    if isinstance(batch, (list, tuple)):
        return [shown(part) for part in batch]
    array = batch.asnumpy() if hasattr(batch, "asnumpy") else batch
    return array.tolist() if hasattr(array, "tolist") else array


def until_the_end(batches, most=20):
    """The batches of an iterator, and the types of the errors between them."""
    seen = []
    for _ in range(most):
        try:
            seen.append(shown(next(batches)))
        except StopIteration:
            return [*seen, "end"]
        except Exception as error:
            seen.append(type(error).__name__)
    return seen


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
