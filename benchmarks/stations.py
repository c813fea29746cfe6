"""Counts the calls of the package's functions for a small batch, in the main program and in the worker.

A method that a dataclass has generated is counted, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import gluonloader

from .cases import CASES, Case
from .harness import Topic
from .report import markdown

_STEADY: Final = range(200, 210)  # numbers of the traced batches; earlier batches still fill buffers and caches


class Tracer:
    """Counts the calls of the package's functions in the thread that starts it, by module and name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def start(self) -> None:
        """Starts to trace the current thread."""
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("gluonloader."):
            self.calls[f"{module.removeprefix('gluonloader.')}: {_name(frame)}"] += 1


def _name(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_filename == "<string>" and "self" in frame.f_locals:  # of a dataclass
        return f"{type(frame.f_locals['self']).__qualname__}.{code.co_name}"
    return getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified name


class Traced:
    """Wraps the dataset of a case. In a worker, it traces the `_STEADY` batches, and writes what ran to a folder."""

    def __init__(self, dataset: Any, batch_size: int, folder: str) -> None:
        self._dataset, self._folder = dataset, folder
        self._first, self._stop = _STEADY.start * batch_size, _STEADY.stop * batch_size
        self._tracer = Tracer()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if index == self._first:
            self._tracer.start()
        if index == self._stop and self._tracer.calls:
            sys.setprofile(None)
            file = Path(self._folder, f"{os.getpid()}-{threading.get_ident()}")
            file.write_text(json.dumps(self._tracer.calls))
        return self._dataset[index]


def trace(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Returns how often each function is called for a batch, in the main program and in a single worker process."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        dataset = Traced(case.dataset(), case.batch_size, folder)
        with gluonloader.DataLoader(dataset, case.batch_size, num_workers=1, start_method="fork") as loader:
            for number, _ in enumerate(loader):
                if number == _STEADY.start:
                    tracer.start()
                if number == _STEADY.stop:
                    sys.setprofile(None)
        (found,) = (path.read_text() for path in Path(folder).iterdir())
    main, worker = (
        {name: count / len(_STEADY) for name, count in calls.items()} for calls in (tracer.calls, json.loads(found))
    )
    return main, worker


def run(options: Namespace) -> Iterator[str]:
    """Yields the table of the functions of the case `small`."""
    ways = trace(CASES["small"])
    rows = [
        [name, *(f"{calls[name]:.1f}" if name in calls else "" for calls in ways)]
        for name in sorted({name for calls in ways for name in calls})
    ]
    rows.append([f"{len(rows)} functions", *(f"{sum(calls.values()):.1f}" for calls in ways)])
    yield f"Calls for a batch of {CASES['small'].what}\n\n{markdown(['', 'main', 'worker'], rows)}"


TOPIC: Final = Topic(run)
