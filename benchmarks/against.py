"""Compares the package of this tree with that of another commit: the same cases, in turn, in one run.

Two programs time a loader. Both import the benchmarks of this tree, but the package of different commits. So the
modules that these programs import use only what old commits have, too.

A change that costs a microsecond is not noticed by itself. Ten of them are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import gluonloader

from .cases import CASES, Case
from .harness import Figures, Measure, Table
from .loaders import GluonLoader, Loader, OneImport, Tensors
from .measure import epochs
from .programs import Program
from .report import time_of

ROOT: Final = Path(__file__).parents[1]
_LOADERS: Final[dict[str, Loader]] = {loader.name: loader for loader in (GluonLoader(), Tensors(), OneImport())}

_COLUMNS: Final = {"before": time_of, "this tree": time_of, "ratio": "{:.2f}".format}


def compare(commit: str, cases: Sequence[Case], workers: int) -> Iterator[Table]:
    """Yields a table for each case. A row has how many times as long as `commit` this tree takes for a loader."""
    with other_package(commit) as path:
        for case in cases:
            with ExitStack() as stack:
                rows = {
                    loader.name: _in_turn(case, loader, workers, path, stack)
                    for loader in _LOADERS.values()
                    if loader.name in case.contenders
                    if not (case.absence() or loader.absence()) and _has(path, loader)
                }
                if rows:
                    yield Table(f"{case.name}, before: {commit}", rows, _COLUMNS)


@contextmanager
def other_package(commit: str) -> Iterator[Path]:
    """Yields a folder that contains the package of a commit, without its benchmarks."""
    with tempfile.TemporaryDirectory(prefix="against-") as folder:
        clone, path = Path(folder, "clone"), Path(folder, "path")
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=clone, check=True)
        path.mkdir()
        (path / "gluonloader").symlink_to(clone / "gluonloader")
        yield path


def program_with(root: Path, steps: Callable[..., Iterator[Any]], *arguments: Any, pauses: bool = False) -> Program:
    """Starts a program that runs a generator function with the package in the folder `root`."""
    sys.path.insert(0, str(root))  # a new program gets this list, too
    try:
        return Program(_with_package, str(root), steps, *arguments, method="spawn", pauses=pauses)
    finally:
        sys.path.remove(str(root))


def _with_package(root: str, steps: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
    if not str(gluonloader.__file__).startswith(root):
        raise ImportError(f"{gluonloader.__file__} was imported instead of the package in {root}")
    return steps(*arguments)


def _has(path: Path, loader: Loader) -> bool:
    """Whether the other commit has the loader's module; a module outside of the package does not matter."""
    package, *inside = loader.module.split(".")
    return package != "gluonloader" or path.joinpath(package, *inside).exists()


def _in_turn(case: Case, loader: Loader, workers: int, path: Path, stack: ExitStack) -> Measure:
    other, own = (
        stack.enter_context(program_with(root, _turns, case.name, loader.name, workers, pauses=True))
        for root in (path, ROOT)
    )
    for program in (other, own):
        program.answer()

    def measure() -> Figures:
        before, now = other.step(), own.step()
        return {"before": before, "this tree": now, "ratio": now / before}

    return measure


def _turns(case: str, loader: str, workers: int) -> Iterator[Any]:
    dataset = CASES[case].dataset()
    return epochs(CASES[case], _LOADERS[loader], dataset, _LOADERS[loader].workers(CASES[case], workers))
