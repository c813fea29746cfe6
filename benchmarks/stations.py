"""Counts the code that runs for a small batch: `python -m benchmarks.stations`.

It prints each function of the package that is called, in the main program or in the worker, while a small batch is made
and delivered, with its lines and the number of its calls. Calls from one file into another are counted, too: these are
the places where a reader has to open the next file. The constructor that a dataclass generates counts as a function
with as many lines as the class has fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import gluonloader

from .cases import CASES, Case

_ROOT: Final = Path(gluonloader.__file__).parent
_STEADY: Final = range(200, 210)  # numbers of the traced batches; earlier batches still fill buffers and caches


@dataclass(frozen=True, order=True)
class Function:
    """A function of the package, with the number of its lines."""

    file: str
    name: str
    line: int
    lines: int


class Tracer:
    """Records the calls of the package's functions in a thread.

    Attributes:
        calls: how often each function was called; 0 for a function that only calls others.
        crossings: how often a function was called by one of another file.
    """

    def __init__(self) -> None:
        self.calls: Counter[Function] = Counter()
        self.crossings = 0
        self._known: dict[CodeType, Function | None] = {}
        self._generated = _constructors()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        function = self._function(frame.f_code) if event == "call" else None
        if function is None:
            return
        self.calls[function] += 1
        caller = self._caller(frame)
        if caller is not None:
            self.calls[caller] += 0  # it may run all the time, such as the loop of a worker
            self.crossings += caller.file != function.file

    def start(self) -> None:
        """Starts to trace the current thread."""
        sys.setprofile(self)

    def _function(self, code: CodeType) -> Function | None:
        """The function of the package that has this code; None if another package has it."""
        if code not in self._known:
            self._known[code] = self._generated.get(code) or _described(code)
        return self._known[code]

    def _caller(self, frame: FrameType) -> Function | None:
        """The function of the package that has called, perhaps through code of other packages."""
        back = frame.f_back
        while back is not None and self._function(back.f_code) is None:
            back = back.f_back
        return None if back is None else self._function(back.f_code)


def _described(code: CodeType) -> Function | None:
    file = code.co_filename
    if not file.startswith(str(_ROOT)):
        return None
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified name
    return Function(str(Path(file).relative_to(_ROOT)), name, code.co_firstlineno, last - code.co_firstlineno + 1)


def _constructors() -> dict[CodeType, Function]:
    """The constructors that the dataclasses of the modules in use have generated; their code has no file."""
    found = dict[CodeType, Function]()
    for name, module in list(sys.modules.items()):
        if not name.startswith("gluonloader"):
            continue
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == name and dataclasses.is_dataclass(kind):
                code = getattr(kind.__init__, "__code__", None)
                if code is not None and not code.co_filename.startswith(str(_ROOT)):
                    file = str(Path(module.__file__ or "").relative_to(_ROOT))
                    text, line = f"{kind.__qualname__}.__init__ (generated)", inspect.getsourcelines(kind)[1]
                    found[code] = Function(file, text, line, len(dataclasses.fields(kind)))
    return found


class Traced:
    """Wraps the dataset of a case. In a worker, it traces the `_STEADY` batches, and writes what ran to a folder."""

    def __init__(self, dataset: Any, batch_size: int, folder: str) -> None:
        self._dataset, self._folder = dataset, folder
        self._first, self._stop = _STEADY.start * batch_size, _STEADY.stop * batch_size
        self._tracer: Tracer | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if index == self._first:
            self._tracer = Tracer()
            self._tracer.start()
        if index == self._stop and self._tracer is not None:
            sys.setprofile(None)
            calls = [[dataclasses.astuple(function), count] for function, count in self._tracer.calls.items()]
            text = json.dumps([calls, self._tracer.crossings])
            Path(self._folder, f"{os.getpid()}-{threading.get_ident()}").write_text(text)
        return self._dataset[index]


@dataclass(frozen=True)
class Way:
    """What runs for a batch in one process.

    Attributes:
        calls: how often each function is called for a batch; 0 for a function that runs all the time.
        crossings: number of calls from one file into another, for a batch.
    """

    calls: dict[Function, float]
    crossings: float


@dataclass(frozen=True)
class Stations:
    """What runs for a batch in the main program and in the worker."""

    main: Way
    worker: Way

    @property
    def functions(self) -> set[Function]:
        return {*self.main.calls, *self.worker.calls}

    @property
    def files(self) -> set[str]:
        return {function.file for function in self.functions}

    @property
    def lines(self) -> int:
        """The number of lines of all functions together; a line of a function inside another one counts once."""
        spans = [(function.file, function.line, function.lines) for function in self.functions]
        return len({(file, line) for file, first, count in spans for line in range(first, first + count)})


def trace(case: Case) -> Stations:
    """Traces some batches of a case with a single worker process."""
    for module in pkgutil.walk_packages([str(_ROOT / "executors" / "lanes")], "gluonloader.executors.lanes."):
        importlib.import_module(module.name)  # before the tracer looks for dataclasses
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
    calls, crossings = json.loads(found)
    in_worker = Counter({Function(*function): count for function, count in calls})
    return Stations(_way(tracer.calls, tracer.crossings), _way(in_worker, crossings))


def _way(calls: Counter[Function], crossings: int) -> Way:
    count = len(_STEADY)
    return Way({function: number / count for function, number in sorted(calls.items())}, crossings / count)


def main() -> None:
    """Prints the functions of the case `small`, and the sums."""
    case = CASES["small"]
    found = trace(case)
    print(f"{'lines':>6} {'main':>5} {'worker':>6}  (calls per batch)")
    for function in sorted(found.functions):
        main, worker = (way.calls.get(function) for way in (found.main, found.worker))
        shown = ["" if calls is None else f"{calls:.1f}" for calls in (main, worker)]
        print(f"{function.lines:6} {shown[0]:>5} {shown[1]:>6}  {function.file}: {function.name}")
    print(f"a batch of {case.what} runs {len(found.functions)} functions with {found.lines:,} lines in")
    print(f"{len(found.files)} files; in each process, calls of functions, and calls from one file into another:")
    for name, way in (("main", found.main), ("worker", found.worker)):
        print(f"  {name:6} {sum(way.calls.values()):6.1f} {way.crossings:6.1f}")


if __name__ == "__main__":
    main()
