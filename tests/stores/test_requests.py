"""Requests to a store: how many run at a time, which are repeated, and what is tried again."""

import errno
import queue
import threading
from types import SimpleNamespace

import pytest
from conftest import eventually

from gluonloader.stores import requests
from gluonloader.stores.requests import Requests, is_disk_full, is_final
from gluonloader.stores.source import Fault


class Store:
    """A store that answers a request when the test says so; and what is done with the answers."""

    def __init__(self, most=8):
        self.answers = {}
        self.kept, self.keeps = [], queue.SimpleQueue()
        self.requests = Requests(self.get, self.keep, lambda: self.keeps.put(None), most, 10.0)
        self.waiting = queue.SimpleQueue()

    def get(self, what):
        answer = queue.SimpleQueue()
        self.waiting.put((what, answer))
        result = answer.get(timeout=60)
        if isinstance(result, Exception):
            raise result
        return result

    def keep(self, what, data):
        self.kept.append((what, data))

    def next(self):
        """The next request, as `get` has received it."""
        return self.waiting.get(timeout=60)[1]

    def ended(self):
        """Waits until the thread of a request has ended; returns the requests that have ended."""
        self.keeps.get(timeout=60)
        return [(end.request.what, end.error) for end in self.requests.ended()]

    def do(self, what, result=b"data"):
        self.requests.start(what)
        self.next().put(result)
        return self.ended()

    def allowed(self):
        """How many requests may run at a time; ends them."""
        started = []
        while self.requests.free:
            started.append(f"more {len(started)}")
            self.requests.start(started[-1])
        for _ in started:
            self.next().put(ValueError("of the test"))
        for _ in started:
            self.ended()
        return len(started)


@pytest.fixture
def clock(monkeypatch):
    """The time that the requests see, in seconds."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


@pytest.fixture
def store():
    return Store()


def test_an_answer_is_kept_and_counted(store):
    assert store.do("a", b"12345") == [("a", None)]
    assert store.kept == [("a", b"12345")]
    seen = store.requests
    assert (seen.made, seen.failed, seen.repeated, seen.fetched) == (1, 0, 0, 5)
    assert seen.wait_s() is None
    assert seen.may_start("a")


def test_no_more_requests_run_than_allowed(store):
    assert store.allowed() == 8


def test_a_request_that_runs_is_not_started_again(store):
    store.requests.start("a")
    assert not store.requests.may_start("a")
    assert store.requests.may_start("b")
    store.next().put(b"")
    store.ended()


def test_throttling_halves_the_requests_at_a_time_and_answers_raise_them_again(store, clock):
    throttled = Fault("throttled", "503 SlowDown")
    assert store.do("a", throttled) == [("a", throttled)]
    assert store.allowed() == 4
    store.do("b", throttled)  # of the same burst
    assert store.allowed() == 4
    clock.s += 2
    store.do("c", throttled)
    assert store.allowed() == 2
    for wave in range(20):
        clock.s += 2
        store.do(f"d {wave}", throttled)
    assert store.allowed() == 1
    for number in range(50):
        store.do(number)
    assert store.allowed() == 8


def test_other_failures_do_not_change_the_requests_at_a_time(store, clock):
    store.do("a", Fault("other", "connection reset"))
    assert store.allowed() == 8


def test_a_failed_request_pauses_longer_each_time_until_it_has_an_answer(store, clock):
    waits = []
    for tries in range(1, 12):
        store.do("a", Fault("other", f"failure {tries}"))
        assert store.requests.trouble["a"] == f"failure {tries}"
        assert not store.requests.may_start("a")
        assert store.requests.may_start("b")
        waits.append(store.requests.wait_s())
        clock.s += waits[-1]
        assert store.requests.may_start("a")
    for tries, wait in enumerate(waits, 1):
        longest = min(10, 0.1 * 2 ** (tries - 1))
        assert longest / 2 <= wait <= longest + 1e-6
    store.do("a")
    assert store.requests.trouble == {}
    assert store.requests.wait_s() is None
    store.do("a", Fault("other", "again"))
    assert store.requests.wait_s() <= 0.2
    store.requests.forget("a")
    assert store.requests.may_start("a")


def with_durations(store, clock, seconds):
    """Makes requests that take so long, so that it is known which ones are slow."""
    for number in range(20):
        store.requests.start(number)
        answer = store.next()
        clock.s += seconds
        answer.put(b"")
        store.ended()


def test_a_slow_request_is_made_a_second_time_and_the_first_answer_counts(store, clock):
    with_durations(store, clock, 1.0)
    store.requests.start("slow")
    first = store.next()
    clock.s += 2.9
    store.requests.repeat_slow()
    assert store.requests.repeated == 0
    assert store.requests.wait_s() <= 0.5
    clock.s += 0.2
    store.requests.repeat_slow()
    store.requests.repeat_slow()
    assert store.requests.repeated == 1
    second = store.next()
    second.put(b"second")
    assert store.ended() == [("slow", None)]
    first.put(b"first")
    assert eventually(lambda: not any(thread.name == "gluonloader-request" for thread in threading.enumerate()))
    assert store.requests.ended() == []
    assert store.kept[-1] == ("slow", b"second")
    assert (len(store.kept), store.requests.made, store.requests.fetched) == (21, 22, 6)


def test_a_copy_that_fails_is_no_failure_as_long_as_the_other_one_runs(store, clock):
    with_durations(store, clock, 1.0)
    store.requests.start("slow")
    first = store.next()
    clock.s += 4
    store.requests.repeat_slow()
    store.next().put(ValueError("of the copy"))
    assert store.ended() == []
    assert (store.requests.failed, "slow" in store.requests.running) == (0, True)
    error = ValueError("of the first")
    first.put(error)
    assert store.ended() == [("slow", error)]
    assert store.requests.failed == 1


def test_few_requests_are_made_a_second_time(store, clock):
    with_durations(store, clock, 0.1)
    for number in range(5):
        store.requests.start(f"slow {number}")
    answers = [store.next() for _ in range(5)]
    clock.s += 0.4  # more than three times as long as the others, but not worth a second request
    store.requests.repeat_slow()
    assert store.requests.repeated == 0
    clock.s += 60
    store.requests.repeat_slow()
    assert store.requests.repeated == 1
    for answer in [*answers, store.next()]:
        answer.put(b"")
    for _ in range(5):
        store.ended()


def test_which_errors_are_final():
    assert [kind for kind in ("missing", "changed", "refused", "throttled", "other") if is_final(Fault(kind, ""))] == [
        "missing", "changed", "refused"
    ]  # fmt: skip
    assert not is_final(OSError("reset"))
    assert is_disk_full(OSError(errno.ENOSPC, "full"))
    assert not is_disk_full(OSError(errno.EIO, "broken"))
    assert not is_disk_full(None)
