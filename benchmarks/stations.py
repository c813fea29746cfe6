"""Which files a steady small batch passes through: `python -m benchmarks.stations`.

Every file of the package with at least one executed line counts with its whole length, in the main program and in the
worker together: it is what a reader has to open to follow one batch.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import gluonloader

from .cases import CASES, Case

_ROOT: Final = Path(gluonloader.__file__).parent
_STEADY: Final = range(200, 210)  # batches that are traced, after the window, slabs and caches have settled


class Tracer:
    """Notes the files of the package whose code runs in a thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(_ROOT)):
            self.files.add(file)
            self.calls += 1

    def start(self) -> None:
        """Traces this thread from now on."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(str(_ROOT)):  # functions that run already
            self.files.add(frame.f_code.co_filename)
            frame = frame.f_back
        sys.setprofile(self)


class Traced:
    """The dataset of a case; in a worker it traces the steady batches and writes what it found to a folder."""

    def __init__(self, dataset: Any, batch_size: int, folder: str) -> None:
        self._dataset, self._folder = dataset, folder
        self._first, self._stop = _STEADY.start * batch_size, _STEADY.stop * batch_size
        self._tracer = Tracer()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if index == self._first:
            self._tracer.start()
        if index == self._stop:
            sys.setprofile(None)
            text = "\n".join([str(self._tracer.calls), *self._tracer.files])
            Path(self._folder, f"{os.getpid()}-{threading.get_ident()}").write_text(text)
        return self._dataset[index]


@dataclass(frozen=True)
class Stations:
    """What a steady batch passes through.

    Attributes:
        files: each file of the package with its number of lines and "main", "worker" or "both".
        main_calls, worker_calls: calls of the package's functions, per batch.
    """

    files: dict[str, tuple[int, str]]
    main_calls: float
    worker_calls: float

    @property
    def lines(self) -> int:
        """Lines of all files together."""
        return sum(length for length, _ in self.files.values())


def trace(case: Case) -> Stations:
    """Traces some batches of a case with one worker process."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        dataset = Traced(case.dataset(), case.batch_size, folder)
        with gluonloader.DataLoader(dataset, case.batch_size, num_workers=1, start_method="fork") as loader:
            for number, _ in enumerate(loader):
                if number == _STEADY.start:
                    tracer.start()
                if number == _STEADY.stop:
                    sys.setprofile(None)
        (found,) = (path.read_text().splitlines() for path in Path(folder).iterdir())
    in_worker = set(found[1:])
    files = {}
    for file in sorted(tracer.files | in_worker):
        where = "both" if file in tracer.files & in_worker else "main" if file in tracer.files else "worker"
        files[str(Path(file).relative_to(_ROOT))] = len(Path(file).read_text().splitlines()), where
    return Stations(files, tracer.calls / len(_STEADY), int(found[0]) / len(_STEADY))


def main() -> None:
    """Prints the files of the case *small*."""
    case = CASES["small"]
    found = trace(case)
    for file, (length, where) in found.files.items():
        print(f"{length:6,}  {where:6}  {file}")
    print(f"{found.lines:6,}  lines in {len(found.files)} files, for a steady batch of {case.what}")
    print(f"{found.main_calls:.0f} calls in the main program, {found.worker_calls:.0f} in the worker, per batch")


if __name__ == "__main__":
    main()
