"""Parses the arguments, and runs one case after another."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .against import compare
from .cases import CASES, Case
from .copying import PlainCopy
from .measure import Result, measure
from .page import page
from .report import auto_rows, case_table, machine
from .usage import Usage, measure_usage
from .variants import CHOICES, LOADERS, measure_choices

_REPEATS: Final = ("inproc", "columns-f32", "copy-limit")  # for "auto", these cases equal other cases


def main() -> None:
    """Runs the cases that the arguments name, and prints the results of each case as soon as it is done."""
    arguments = _parse()
    if arguments.against is not None:
        compare(arguments.against, arguments.cases or list(CASES), arguments.workers, arguments.rounds)
        return
    command = f"python -m benchmarks {shlex.join(sys.argv[1:])}"
    about = f"{machine(LOADERS)}\n{arguments.workers} workers, {arguments.rounds} rounds\n{command}"
    print(f"{about}\n")
    times: dict[str, list[Result]] = {}
    usage: dict[str, dict[str, Usage]] = {}
    auto: dict[str, list[Result]] = {}
    for case in [CASES[name] for name in arguments.cases or CASES]:
        if arguments.times:
            loaders = (*LOADERS, PlainCopy()) if PlainCopy.name in case.contenders else LOADERS
            times[case.name] = measure(case, loaders, arguments.workers, arguments.rounds)
            usage[case.name] = _usage(case, times[case.name], arguments.workers) if arguments.usage else {}
            print(case_table(case, times[case.name], usage[case.name]), end="\n\n", flush=True)
        if arguments.auto and case.name not in _REPEATS:
            auto[case.name] = measure_choices(case.name, arguments.workers, arguments.rounds)
            _print_auto(auto, case.name)
        if arguments.markdown is not None:  # after each case, so that an interrupted run leaves results
            arguments.markdown.write_text(page(times, usage, auto, about))


def _usage(case: Case, results: Sequence[Result], workers: int) -> dict[str, Usage]:
    """Measures the usage of all loaders that were timed; only if the case times whole epochs."""
    timed = {result.loader for result in results if result.times}
    loaders = [loader for loader in LOADERS if loader.name in timed]
    return {loader.name: measure_usage(case, loader, workers) for loader in loaders if case.measure == "epoch"}


def _print_auto(auto: dict[str, list[Result]], name: str) -> None:
    for case, *times, best, ratio in auto_rows({name: auto[name]}):
        shown = ", ".join(f"{loader.name} {time}" for loader, time in zip(CHOICES, times, strict=True))
        print(f"{case}: {shown}; auto takes {ratio} times as long as {best}\n", flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Times gluonloader against other loaders.")
    cases = f"cases to run, of {', '.join(CASES)} (default: all cases)"
    parser.add_argument("cases", nargs="*", metavar="case", help=cases)
    parser.add_argument("--rounds", type=_positive, default=7, help="timed epochs of each loader (default 7)")
    parser.add_argument("--workers", type=_positive, default=2, help="number of workers of each loader (default 2)")
    parser.add_argument("--usage", action="store_true", help="also measure processor time, page faults and memory")
    auto = 'also compare executor="auto" with each fixed executor'
    parser.add_argument("--auto", action="store_true", help=auto)
    parser.add_argument("--no-times", dest="times", action="store_false", help="do not time the loaders")
    against = "only compare this tree with the package of COMMIT, in turn"
    parser.add_argument("--against", metavar="COMMIT", help=against)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a page FILE; benchmarks.plot draws it")
    arguments = parser.parse_args()
    for name in arguments.cases:
        if name not in CASES:
            parser.error(f"there is no case {name!r}; the cases are {', '.join(CASES)}")
    return arguments


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be at least 1")
    return number


if __name__ == "__main__":
    main()
