"""Counts the calls of the package's functions, and the instructions of Python in them, for one batch of a case.

python -m benchmarks stations
python -m benchmarks stations tiny small --against COMMIT

Without workers, the counts are the same in each run; with them, they vary by a few percent, since several messages may
arrive together. So they show what a change costs even on a machine whose times vary. They do not include the work of
NumPy and of the kernel. A method that a dataclass has generated is counted, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import gluonloader

from .against import ROOT, other_package, program_with
from .cases import CASES, Case
from .harness import Figures, Measure, Table, Topic
from .loaders import pad_in_place
from .report import markdown

_STEADY: Final = range(50, 150)  # numbers of the traced batches; earlier batches still fill buffers and caches
_USUAL: Final = "small"
_COUNT: Final = "{:,.0f}".format

Counts = Mapping[str, float]  # for one batch, by module and name of the function


class Tracer:
    """Counts what the package's functions do in the thread that starts it, by module and name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.instructions: Counter[str] = Counter()

    def start(self) -> None:
        """Starts to trace the functions that the current thread calls from now on."""
        sys.settrace(self)

    def stop(self) -> tuple[Counts, Counts]:
        """Returns the calls and the instructions for one of the `_STEADY` batches."""
        sys.settrace(None)
        calls, instructions = (
            {name: count / len(_STEADY) for name, count in counts.items()} for counts in (self.calls, self.instructions)
        )
        return calls, instructions

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("gluonloader."):
            return None
        name = f"{module.removeprefix('gluonloader.')}: {_name(frame)}"
        self.calls[name] += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            self.instructions[name] += event == "opcode"
            return count

        return count


def _name(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_filename == "<string>" and "self" in frame.f_locals:  # of a dataclass
        return f"{type(frame.f_locals['self']).__qualname__}.{code.co_name}"
    return getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified name


class Traced:
    """Wraps the dataset of a case. In a worker, it traces the `_STEADY` batches, and writes what ran to a folder."""

    def __init__(self, dataset: Any, batch_size: int, folder: str) -> None:
        self._dataset, self._folder, self._program = dataset, folder, os.getpid()
        self._first, self._stop = _STEADY.start * batch_size, _STEADY.stop * batch_size
        self._tracer = Tracer()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self._program:
            if index == self._first:
                self._tracer.start()
            if index == self._stop and self._tracer.calls:
                file = Path(self._folder, f"{os.getpid()}-{threading.get_ident()}")
                file.write_text(json.dumps(self._tracer.stop()))
        return self._dataset[index]


def trace(case: Case) -> dict[str, tuple[Counts, Counts]]:
    """Returns the calls and the instructions for a batch, in the main program and, if the case has it, in a worker."""
    tracer, workers = Tracer(), dict[str, Any]() if case.in_process else {"num_workers": 1, "start_method": "fork"}
    with tempfile.TemporaryDirectory() as folder:
        dataset = Traced(case.dataset(), case.batch_size, folder)
        pads = case.padding(pad_in_place)
        with gluonloader.DataLoader(dataset, case.batch_size, batchify_fn=pads, **workers) as loader:
            for number, _ in enumerate(loader):
                if number == _STEADY.start:
                    tracer.start()
                if number == _STEADY.stop:
                    found = {"main": tracer.stop()}
        for path in Path(folder).iterdir():
            calls, instructions = json.loads(path.read_text())
            found["worker"] = calls, instructions
    return found


def run(options: Namespace) -> Iterator[Table | str]:
    """Yields the table of the functions of each case, or a table that compares the cases with another commit."""
    cases = [CASES[name] for name in options.names] if len(options.names) < len(CASES) else [CASES[_USUAL]]
    if options.against is None:
        yield from map(_functions, cases)
        return
    columns = {"before": _COUNT, "this tree": _COUNT, "ratio": "{:.3f}".format}
    with other_package(options.against) as path:
        rows: dict[str, Measure | str] = {
            case.name: case.absence() or _too_few(case) or partial(_compared, case.name, path) for case in cases
        }
        yield Table(f"Instructions for a batch, before: {options.against}", rows, columns)


def _too_few(case: Case) -> str:
    return "" if case.batches > _STEADY.stop else f"an epoch has only {case.batches} batches"


def _functions(case: Case) -> str:
    found = trace(case)
    rows = [
        [name, *(f"{counts[name]:,.1f}" if name in counts else "" for pair in found.values() for counts in pair)]
        for name in sorted({name for calls, _ in found.values() for name in calls})
    ]
    rows.append(
        [f"{len(rows)} functions", *(_COUNT(sum(counts.values())) for pair in found.values() for counts in pair)]
    )
    headings = [f"{where}, {what}" for where in found for what in ("calls", "instructions")]
    return f"For a batch of {case.what}\n\n{markdown(['', *headings], rows)}"


def _compared(case: str, path: Path) -> Figures:
    with program_with(path, _instructions, case) as other, program_with(ROOT, _instructions, case) as own:
        before, now = other.answer(), own.answer()
    return {"before": before, "this tree": now, "ratio": now / before}


def _instructions(case: str) -> Iterator[float]:
    """Yields the instructions for a batch, of the main program and the worker together."""
    yield sum(sum(instructions.values()) for _, instructions in trace(CASES[case]).values())


TOPIC: Final = Topic(
    run, names=CASES, options={"against": (None, "compare the instructions with those of this commit")}
)
