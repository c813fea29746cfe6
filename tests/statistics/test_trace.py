"""A trace keeps the rules of its format, and its sums are those of the statistics."""

import json
import multiprocessing
import time
from collections import defaultdict

import pytest
from conftest import ANY, FORK, SERIAL, Way, run_program
from samples import Numbered

from gluonloader import DataLoader

BULK = Way("fork, side by side", {"num_workers": 2, "start_method": "fork", "concurrency": 3})
NUMBERS = "X", "C", "s", "t", "f"  # phases whose events have a time


class Bulk(Numbered):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def traced(way, path, dataset, epochs):
    with way.loader(dataset, 4) as loader:
        with loader.trace(path):
            for _ in range(epochs):
                for _ in loader:
                    pass
        return events_of(path), loader.stats()


def total(events, name):
    return sum(event["dur"] for event in events if event["ph"] == "X" and event["name"].partition(":")[0] == name) / 1e6


@pytest.fixture(params=[*ANY, BULK], ids=str, scope="module")
def recording(request, tmp_path_factory):
    """The events of two epochs, and the statistics."""
    return traced(request.param, tmp_path_factory.mktemp("trace") / "run.json", Bulk(60), epochs=2)


def test_events_have_the_fields_of_the_format_and_spans_nest(recording):
    (events, _), rows = recording, defaultdict(list)
    for event in events:
        assert event.keys() >= {"name", "ph", "pid"}
        if event["ph"] == "M":
            continue
        assert event["ph"] in NUMBERS
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            rows[event["tid"]].append(event)
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert named == set(rows)
    for spans in rows.values():
        open_ends = []
        for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
            end = span["ts"] + span["dur"]
            while open_ends and open_ends[-1] <= span["ts"] + 1e-3:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-3
            open_ends.append(end)


def test_each_batch_has_an_arrow_from_draw_to_delivery(recording):
    (events, _), arrows = recording, defaultdict(list)
    for event in sorted((event for event in events if event["ph"] in "stf"), key=lambda event: event["ts"]):
        arrows[event["id"]].append(event["ph"])
    assert set(arrows) == {f"{epoch}.{batch}" for epoch in range(2) for batch in range(15)}
    for phases in arrows.values():
        assert phases[-1] == "f"
        assert phases[0] == "s"
        assert set(phases[1:-1]) == {"t"}


def test_the_sums_are_those_of_the_statistics(recording):
    events, stats = recording
    assert total(events, "read") == pytest.approx(stats.work.read_s, abs=1e-6)
    assert total(events, "batchify") == pytest.approx(stats.work.batchify_s, abs=1e-6)
    assert total(events, "transport") == pytest.approx(stats.work.transport_s, abs=1e-6)
    assert total(events, "next") == pytest.approx(stats.waited_s, abs=1e-5)
    assert len([event for event in events if event["ph"] == "C" and event["name"] == "window"]) == stats.batches


def test_the_program_waits_or_computes_from_the_first_to_the_last_batch(tmp_path):
    events, stats = traced(SERIAL, tmp_path / "run.json", Numbered(60), epochs=1)
    assert total(events, "computing") == pytest.approx(stats.program_s, abs=1e-5)
    spans = [event for event in events if event["name"].partition(":")[0] in ("next", "computing")]
    whole = max(span["ts"] + span["dur"] for span in spans) - min(span["ts"] for span in spans)
    assert total(events, "computing") + total(events, "next") == pytest.approx(whole / 1e6, abs=1e-5)


@pytest.mark.parametrize("batches", [1000, 40])
def test_the_verdict_is_about_the_recorded_batches(tmp_path, batches):
    """The program computes while the recording runs, and waits before, and after a recording that is full."""
    with SERIAL.loader(Slow(1000), 1) as loader:
        iterator = iter(loader)
        loader.dataset.seconds = 0.01
        for _ in range(50):
            next(iterator)
        with loader.trace(tmp_path / "run.json", batches=batches) as trace:
            loader.dataset.seconds = 0.0
            assert trace.verdict == ""
            for _ in range(40):
                next(iterator)
                time.sleep(0.03)
            if batches == 40:
                loader.dataset.seconds = 0.02
                for _ in range(20):
                    next(iterator)
    assert trace.verdict.endswith("the program is the limit, not the loader.")
    labels = [event for event in events_of(tmp_path / "run.json") if event["name"] == "process_labels"]
    assert [event["args"]["labels"] for event in labels] == [trace.verdict]


class Slow(Numbered):
    seconds = 0.0

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return super().__getitem__(index)


def test_a_recording_has_a_limited_length(tmp_path):
    with FORK.loader(Numbered(400), 4) as loader:
        with loader.trace(tmp_path / "run.json", batches=10):
            list(loader)
        events = events_of(tmp_path / "run.json")
    assert len([event for event in events if event["name"].startswith("next")]) == 10
    assert len([event for event in events if event["name"] == "read"]) == 10


def test_a_full_recording_shows_who_made_each_batch(tmp_path):
    """The program is slow, so workers are ahead of it when the recording ends."""
    with FORK.loader(Numbered(400), 4, prefetch=20) as loader:
        with loader.trace(tmp_path / "run.json", batches=20):
            for _ in loader:
                time.sleep(0.005)
        names = {event["name"] for event in events_of(tmp_path / "run.json") if event["ph"] == "X"}
    assert {f"batch {number} of epoch 0" for number in range(20)} <= names


@pytest.mark.parametrize("way", ANY, ids=str)
def test_the_program_does_not_compute_while_it_waits_for_a_batch_that_fails(tmp_path, way):
    with way.loader(Fails(80), 2) as loader:
        with loader.trace(tmp_path / "run.json"):
            iterator, failed = iter(loader), 0
            for _ in range(40):
                try:
                    next(iterator)
                except OSError:
                    failed += 1
        events, stats = events_of(tmp_path / "run.json"), loader.stats()
    assert (failed, stats.failed, stats.batches) == (10, 10, 30)
    assert len([event for event in events if event["name"].startswith("next")]) == 40
    assert total(events, "next") == pytest.approx(stats.waited_s, abs=1e-4)


class Fails(Numbered):
    def __getitem__(self, index):
        if index % 8 == 7:
            raise OSError(index)
        return super().__getitem__(index)


def test_a_second_recording_and_closing_the_loader_end_the_first(tmp_path):
    with SERIAL.loader(Numbered(8), 4) as loader:
        first = loader.trace(tmp_path / "first.json")
        list(loader)
        loader.trace(tmp_path / "second.json")
        assert len(events_of(first.path)) > 2
        list(loader)
    assert len(events_of(tmp_path / "second.json")) > 2
    first.stop()  # a second call does nothing


def test_a_path_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with SERIAL.loader(Numbered(8), 4) as loader:
        with pytest.raises(FileNotFoundError):
            loader.trace(tmp_path / "nowhere" / "run.json")
        with pytest.raises(ValueError, match="batches=0"):
            loader.trace(tmp_path / "run.json", batches=0)
        assert len(list(loader)) == 2


def test_the_program_may_change_its_folder_during_a_recording(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with SERIAL.loader(Numbered(8), 4) as loader, loader.trace("run.json"):
        monkeypatch.chdir(tmp_path / "other")
        list(loader)
    assert len(events_of(tmp_path / "run.json")) > 2
    assert not list((tmp_path / "other").iterdir())


def test_a_forked_child_that_ends_does_not_write_the_recording(tmp_path):
    with SERIAL.loader(Numbered(40), 4) as loader, loader.trace(tmp_path / "run.json") as trace:
        child = multiprocessing.get_context("fork").Process(target=trace.stop)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert (tmp_path / "run.json").read_text() == ""
        list(loader)
    assert len(events_of(tmp_path / "run.json")) > 2


PROGRAM = """
import sys
from gluonloader import DataLoader
loader = DataLoader(range(8), 2, num_workers=2)
loader.trace(sys.argv[1])
list(loader)
"""


@pytest.mark.spawn
def test_the_end_of_the_program_writes_the_recording(tmp_path):
    done = run_program(PROGRAM, str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    assert len([event for event in events_of(tmp_path / "run.json") if event["name"].startswith("next")]) == 4


@pytest.mark.slow
def test_the_executor_may_change_during_a_recording(tmp_path):
    with DataLoader(range(4000), 2, num_workers=2, executor="auto", seed=0) as loader:
        with loader.trace(tmp_path / "run.json"):
            for _ in range(2):
                list(loader)
        events, stats = events_of(tmp_path / "run.json"), loader.stats()
    assert total(events, "next") == pytest.approx(stats.waited_s, abs=1e-4)
    assert total(events, "read") == pytest.approx(stats.work.read_s, abs=1e-6)
