"""Lists the files whose code runs for a small batch: `python -m benchmarks.stations`.

The list contains each file of the package of which a function is called, in the main program or in the worker, while a
small batch is made and delivered. These are the files that a reader has to open to follow a batch, so each file counts
with all its lines.
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
_STEADY: Final = range(200, 210)  # numbers of the traced batches; earlier batches still fill buffers and caches


class Tracer:
    """Records the files of the package whose functions are called in a thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(_ROOT)):
            self.files.add(file)
            self.calls += 1

    def start(self) -> None:
        """Starts to trace the current thread."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(str(_ROOT)):  # functions that run now
            self.files.add(frame.f_code.co_filename)
            frame = frame.f_back
        sys.setprofile(self)


class Traced:
    """Wraps the dataset of a case. In a worker, it traces the `_STEADY` batches, and writes the files to a folder."""

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
    """The files of the package whose functions are called for a batch.

    Attributes:
        files: number of lines of each file, and where its functions are called: "main", "worker" or "both".
        main_calls, worker_calls: number of calls of the package's functions, per batch.
    """

    files: dict[str, tuple[int, str]]
    main_calls: float
    worker_calls: float

    @property
    def lines(self) -> int:
        """The number of lines of all files together."""
        return sum(length for length, _ in self.files.values())


def trace(case: Case) -> Stations:
    """Traces some batches of a case with a single worker process."""
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
    """Prints the files of the case `small`."""
    case = CASES["small"]
    found = trace(case)
    for file, (length, where) in found.files.items():
        print(f"{length:6,}  {where:6}  {file}")
    print(f"{found.lines:6,}  lines in {len(found.files)} files, for a batch of {case.what}")
    print(f"{found.main_calls:.0f} calls in the main program, {found.worker_calls:.0f} in the worker, per batch")


if __name__ == "__main__":
    main()
