"""Arguments, and the cases one after the other."""

from __future__ import annotations

import argparse
from pathlib import Path

import gluonloader.mxnet

from .cases import CASES
from .copying import PlainCopy
from .loaders import LOADERS, Loader
from .measure import Result, measure
from .report import case_table, machine, markdown


def main() -> None:
    """Runs the chosen cases and prints each as soon as it is done."""
    arguments = _parse()
    gluonloader.mxnet.patch_numpy()  # before anything imports MXNet
    about = machine(LOADERS)
    print(f"{about}\n{arguments.workers} workers, {arguments.rounds} rounds\n")
    results: dict[str, list[Result]] = {}
    for name in arguments.cases or CASES:
        case = CASES[name]
        loaders: tuple[Loader, ...] = LOADERS
        if PlainCopy.name in case.contenders:
            loaders = (*LOADERS, PlainCopy())
        results[name] = measure(case, loaders, arguments.workers, arguments.rounds)
        print(case_table(case, results[name]), end="\n\n", flush=True)
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(results, [CASES[name] for name in results], about))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Times gluonloader against other loaders.")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--rounds", type=_positive, default=7, help="epochs of each loader that count (default 7)")
    parser.add_argument("--workers", type=_positive, default=2, help="processes or threads of each loader (default 2)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the results there, as markdown")
    arguments = parser.parse_args()
    for name in arguments.cases:
        if name not in CASES:
            parser.error(f"no case {name!r}; there are {', '.join(CASES)}")
    return arguments


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    main()
