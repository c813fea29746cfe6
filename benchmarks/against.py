"""Compares the package of this tree with that of another commit: the same cases, in turn, in one run.

    python -m benchmarks --against COMMIT [case ...]

    main --a line--> program that imports the package of one of the two trees, and the benchmarks of this tree
         <--seconds-

A change that costs a microsecond is not noticed by itself. Ten of them are.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from .cases import CASES
from .loaders import GluonLoader, Loader, OneImport, Tensors
from .measure import make_timer

__all__ = ["compare"]

_ROOT: Final = Path(__file__).parents[1]
_LOADERS: Final[dict[str, Loader]] = {loader.name: loader for loader in (GluonLoader(), Tensors(), OneImport())}


def compare(commit: str, cases: Sequence[str], workers: int, rounds: int) -> None:
    """Prints how many times as long as `commit` this tree takes for each case and each loader of ours."""
    with tempfile.TemporaryDirectory(prefix="against-") as name:
        folder = Path(name)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(_ROOT), str(clone)], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=clone, check=True)
        (folder / "benchmarks").symlink_to(_ROOT / "benchmarks")
        print(f"{'':24}{'loader':20}{commit[:12]:>14}{'this tree':>14}{'ratio':>8}{'least':>8}{'most':>8}")
        for case in [CASES[name] for name in cases]:
            for loader in _LOADERS.values():
                absent = case.absence() or loader.absence()
                if loader.name in case.contenders and absent is None and _has(clone, loader):
                    before, now = _in_turn(folder, clone, case.name, loader, workers, rounds)
                    ratios = [new / old for new, old in zip(now, before, strict=True)]
                    times = f"{statistics.median(before) * 1e6:>11.1f} us{statistics.median(now) * 1e6:>11.1f} us"
                    spread = f"{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}"
                    print(f"{case.name:24}{loader.name:20}{times}{spread}", flush=True)


def _has(clone: Path, loader: Loader) -> bool:
    """Whether the other commit has the loader's module; a module outside of the package does not matter."""
    package, *path = loader.module.split(".")
    return package != "gluonloader" or clone.joinpath(package, *path).exists()


def _in_turn(
    folder: Path, clone: Path, case: str, loader: Loader, workers: int, rounds: int
) -> tuple[list[float], list[float]]:
    """The seconds per batch in each round: of the clone, and of this tree."""
    with ExitStack() as stack:
        programs = [
            stack.enter_context(closing(_Program(package, folder, case, loader, workers))) for package in (clone, _ROOT)
        ]
        times = [[program.turn() for program in programs] for _ in range(rounds)]
    before, now = zip(*times, strict=True)
    return list(before), list(now)


class _Program:
    """A program with the loader of one package, which is warmed up."""

    def __init__(self, package: Path, folder: Path, case: str, loader: Loader, workers: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.against", case, loader.name, str(workers)],
            cwd=folder,  # which has no package, unlike the root of this tree
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(folder)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.turn()

    def turn(self) -> float:
        """Times the loader once; returns the seconds per batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a program of the comparison has ended; read its output above")
        return float(line)

    def close(self) -> None:
        self._process.communicate()


def _serve(name: str, loader: Loader, workers: int) -> None:
    case = CASES[name]
    with ExitStack() as stack:
        timer = make_timer(loader, case, case.dataset(), loader.workers(case, workers), stack)
        for _ in range(loader.warm_up):
            timer()
        for _ in sys.stdin:
            print(timer(), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], _LOADERS[sys.argv[2]], int(sys.argv[3]))
