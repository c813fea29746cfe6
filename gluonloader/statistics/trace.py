"""Records what the program and the workers do with each batch, and writes it as a trace that Perfetto can show.

    Epoch --drew, delivered--> Trace <--reports-- Usage <--reports-- workers
                                 |
                                 +--stop--> JSON in Chrome's trace event format

The rows of a trace are the program and the workers. A worker that makes several batches at a time has several rows, so
that the spans of a row never overlap. The format is described in "Trace Event Format" by the Chromium project.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..messages import message
from ..work.task import Task
from ..work.usage import BatchReport, Usage

_PROCESS: Final = 1  # the trace has one process, whose threads are the program and the workers
_PROGRAM: Final = 0
_MOST_ROWS: Final = 100  # of one worker


@message(frozen=True, slots=True)
class _Drawn:
    epoch: int
    batch: int
    at_ns: int


@message(frozen=True, slots=True)
class _Call:
    """A call of `next`; `counts`: how many batches were ready, in flight and lent, None if it has raised an error."""

    epoch: int
    batch: int
    start_ns: int
    end_ns: int
    counts: tuple[int, int, int] | None = None


class Trace:
    """A recording of a loader; `DataLoader.trace` starts it.

    Use it in a `with` block, or call `stop()`. Closing the loader and the end of the program stop it, too.

    Attributes:
        path: the file that `stop` writes.
        batches: the recording ends after this many delivered batches.
        verdict: what limited the loader during the recording, and what to change; "" until the recording ends. The
            file contains it, too.
    """

    def __init__(self, path: str | os.PathLike[str], batches: int) -> None:
        self.path, self.batches, self.verdict = Path(path).absolute(), batches, ""  # the program may change its folder
        self._lent: Callable[[], int] = int
        self._find_verdict: Callable[[], str] = str
        self._drawn: list[_Drawn] = []
        self._delivered: list[_Call] = []
        self._failed: list[_Call] = []
        self._usages: list[Usage] = []
        self._reports: list[BatchReport] = []
        self._stopped, self._pid = False, os.getpid()
        with self.path.open("w"):  # an error of the path is raised now, not at the end of the run
            pass
        atexit.register(self.stop)

    def describe_by(self, lent: Callable[[], int], verdict: Callable[[], str]) -> None:
        """Sets the functions that tell how many batches are lent to the program, and what limits the loader."""
        self._lent, self._find_verdict = lent, verdict

    def watch(self, usage: Usage) -> None:
        """Keeps the reports of these workers from now on."""
        if not self.full:
            usage.keep()
            self._usages.append(usage)

    @property
    def full(self) -> bool:
        """Whether nothing more is recorded."""
        return self._stopped or len(self._delivered) >= self.batches

    def drew(self, task: Task, at: float) -> None:
        """The program has drawn a batch from the sampler at time `at` of `time.perf_counter`."""
        if not self.full:
            self._drawn.append(_Drawn(task.epoch, task.batch, int(at * 1e9)))

    def delivered(self, task: Task, start: float, end: float, ready: int, in_flight: int) -> None:
        """A call of `next` from `start` to `end` has returned a batch."""
        if not self.full:
            counts = ready, in_flight, self._lent()
            self._delivered.append(_Call(task.epoch, task.batch, int(start * 1e9), int(end * 1e9), counts))
            if self.full:
                self._end()  # now, since later batches do not belong to the recording

    def failed(self, task: Task, start: float, end: float) -> None:
        """A call of `next` from `start` to `end` has raised the error of a batch."""
        if not self.full:
            self._failed.append(_Call(task.epoch, task.batch, int(start * 1e9), int(end * 1e9)))

    def stop(self) -> None:
        """Ends the recording and writes the file; a second call, or one in a forked child, does nothing."""
        if self._stopped or self._pid != os.getpid():
            return
        self._end()
        self._stopped = True
        atexit.unregister(self.stop)
        calls, reports = [*self._delivered, *self._failed], self._reports
        if self.full:  # workers have made others ahead, which do not belong to the recording
            came = _numbers_of(calls)
            reports = [report for report in reports if (report.epoch, report.batch) in came]
        events = [*_rows(reports), *_program(self._drawn, calls)]
        events.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
        start = min((event["ts"] for event in events), default=0)
        for event in events:
            event["ts"] = (event["ts"] - start) / 1000  # microseconds
            if "dur" in event:
                event["dur"] /= 1000
        text = json.dumps({"traceEvents": [*_names(events, self.verdict), *events], "displayTimeUnit": "ms"})
        self.path.write_text(text)

    def _end(self) -> None:
        """Takes the reports and the verdict; a second call does nothing."""
        self.verdict = self.verdict or self._find_verdict()
        self._reports += [report for usage in self._usages for report in usage.kept()]

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _span(name: str, row: int, start: int, end: int, **arguments: Any) -> dict[str, Any]:
    span = {"name": name, "ph": "X", "ts": start, "dur": end - start, "pid": _PROCESS, "tid": row}
    return {**span, "args": arguments} if arguments else span


def _numbers_of(calls: list[_Call]) -> set[tuple[int, int]]:
    """The epochs and the numbers of the batches of these calls."""
    return {(call.epoch, call.batch) for call in calls}


def _name(made: _Drawn | _Call | BatchReport) -> str:
    return f"batch {made.batch} of epoch {made.epoch}"


def _flow(phase: str, made: _Drawn | _Call | BatchReport, row: int, at: int) -> dict[str, Any]:
    """A point of the arrow from draw to delivery: its start, a step or its end."""
    key = f"{made.epoch}.{made.batch}"
    end = {"bp": "e"} if phase == "f" else {}  # the arrow ends at the span around this point, not at the next span
    return {"name": "batch", "cat": "batch", "ph": phase, "id": key, "ts": at, "pid": _PROCESS, "tid": row, **end}


def _counter(name: str, at: int, **values: int) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": at, "pid": _PROCESS, "args": values}


def _rows(reports: list[BatchReport]) -> Iterator[dict[str, Any]]:
    """The spans of all workers."""
    ends: dict[int, list[int]] = {}  # by worker, the end of the last span of each row
    for report in sorted(reports, key=lambda report: report.start - report.idle):
        start = report.start
        rows = ends.setdefault(report.worker, [])
        free = next((row for row, end in enumerate(rows) if end <= start - report.idle), len(rows))
        rows[free : free + 1] = [report.end]
        row = 1 + _MOST_ROWS * report.worker + min(free, _MOST_ROWS - 1)
        if report.idle:
            yield _span("waiting", row, start - report.idle, start)
        times = {"cpu_ms": report.cpu / 1e6, "core_wait_ms": report.core_wait / 1e6}
        yield _span(_name(report), row, start, report.end, **times, page_faults=report.faults)
        yield _flow("t", report, row, start)
        for stage, length in (("read", report.read), ("batchify", report.batchify), ("transport", report.transport)):
            if length:
                yield _span(stage, row, start, start + length)
            start += length


def _program(drawn: list[_Drawn], calls: list[_Call]) -> Iterator[dict[str, Any]]:
    """The spans of the program, and the counters."""
    came = _numbers_of(calls)
    for draw in drawn:
        yield _span(f"draw {_name(draw)}", _PROGRAM, draw.at_ns, draw.at_ns)
        if (draw.epoch, draw.batch) in came:
            yield _flow("s", draw, _PROGRAM, draw.at_ns)
    end = min((call.start_ns for call in calls), default=0)
    for call in sorted(calls, key=lambda call: call.start_ns):  # iterators of other threads may overlap
        if call.start_ns > end:
            yield _span("computing", _PROGRAM, end, call.start_ns)
        end = max(end, call.end_ns)
        yield _span(f"next: {_name(call)}", _PROGRAM, call.start_ns, call.end_ns)
        yield _flow("f", call, _PROGRAM, call.end_ns)
        if call.counts is not None:
            ready, in_flight, lent = call.counts
            yield _counter("window", call.end_ns, ready=ready, making=in_flight - ready)
            yield _counter("memory", call.end_ns, lent=lent)


def _names(events: list[dict[str, Any]], verdict: str) -> Iterator[dict[str, Any]]:
    """The names of the rows, and the verdict, which viewers show beside the name of the process."""
    yield {"name": "process_name", "ph": "M", "pid": _PROCESS, "args": {"name": "gluonloader"}}
    yield {"name": "process_labels", "ph": "M", "pid": _PROCESS, "args": {"labels": verdict}}
    for row in sorted({event["tid"] for event in events if "tid" in event}):
        worker, thread = divmod(row - 1, _MOST_ROWS)
        name = "program" if row == _PROGRAM else f"worker {worker}" + (f", batch {thread + 1}" if thread else "")
        yield {"name": "thread_name", "ph": "M", "pid": _PROCESS, "tid": row, "args": {"name": name}}
        order = {"sort_index": row}
        yield {"name": "thread_sort_index", "ph": "M", "pid": _PROCESS, "tid": row, "args": order}
