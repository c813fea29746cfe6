"""`python -m gluonloader doctor [module:factory]`: its arguments, the order of its checks, and its output."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Final

from ...errors import logger
from ...progress import ProgressBar
from ..arguments import add_factory, add_json, describe
from ..factory import load_factory
from ..printing import show
from .dataset_findings import dataset_findings, needs_of
from .finding import LEVELS, Finding
from .machine import Machine, gather
from .machine_findings import Needs, machine_findings
from .open_files import open_files
from .probe import ALL_BATCHES, DatasetFacts, Prober, configure

_DESCRIPTION: Final = (
    "Checks this machine and, with a factory, a dataset. It prints a line for each finding, and below it what to do. "
    "The exit status is 1 if something will break."
)
_LEAST_ROOM: Final = 40  # characters for the text of a finding
_EXAMPLES: Final = """\
  python -m gluonloader doctor                   checks the machine
  python -m gluonloader doctor train:make        also checks the loader that make() in train.py returns:
                                                   def make(**options):
                                                       return DataLoader(dataset, 64, **options)
  python -m gluonloader doctor data/cats.py:make --seconds 60
  python -m gluonloader doctor train:make --json > findings.json
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and the option `run`: a function that returns the exit status."""
    describe(parser, _DESCRIPTION, _EXAMPLES)
    add_factory(parser, nargs="?")
    text = "how long reading samples may take (default 20)"
    parser.add_argument("--seconds", type=_positive, default=20.0, metavar="S", help=text)
    add_json(parser, "print the findings and the facts behind them as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Checks, and prints what was found."""
    with _quiet():
        if options.factory is None:
            machine, facts = gather(), None
            findings = list(machine_findings(machine, Needs(machine.cores, window=4 * machine.cores)))
        else:
            machine, facts = _examine(options.factory, options.seconds)
            findings = [*machine_findings(machine, needs_of(facts, machine)), *dataset_findings(facts)]
    if options.json:
        facts_of = {"machine": asdict(machine), "dataset": None if facts is None else asdict(facts)}
        show(json.dumps({"findings": list(map(asdict, findings)), **facts_of}, indent=2))
    else:
        show(*_lines(findings, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
    return int(any(finding.level == "problem" for finding in findings))


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, everything that is printed goes to stderr, and the library logs only errors.

    So the JSON contains nothing else, and the findings replace the warnings of the library.
    """
    log = logger()
    level, stdout = log.level, os.dup(1)
    log.setLevel(logging.ERROR)
    try:
        os.dup2(2, 1)  # for workers, and for libraries that are not written in Python
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        log.setLevel(level)


def _examine(factory: str, seconds: float) -> tuple[Machine, DatasetFacts]:
    before = open_files()
    make = load_factory(factory)
    configured = configure(make, before)
    machine = gather()  # after the factory, which may have started threads, and before this process reads samples
    if configured.loader is None:
        return machine, configured.facts
    with ProgressBar(ALL_BATCHES, "batches") as progress:
        return machine, Prober(make, seconds, progress).examine(configured.loader, configured.facts)


def _lines(findings: list[Finding], columns: int | None) -> list[str]:
    """The findings as lines; texts are broken to fit into the columns of a terminal."""
    width = max(len(finding.name) for finding in findings)
    room = max(_LEAST_ROOM, columns - width - 12) if columns else sys.maxsize
    lines, indent = list[str](), " " * (9 + width)
    for finding in findings:
        first, *more = textwrap.wrap(finding.text, room, break_on_hyphens=False)
        lines += [f"{finding.level:7}  {finding.name:{width}}  {first}", *[f"{indent}  {line}" for line in more]]
        if finding.cure:
            lines.append(f"{indent}  -> {finding.cure}")  # in one line, to be copied
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS[:-1]}
    return [*lines, ", ".join(f"{level}s: {count}" for level, count in counts.items())]


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds above 0")
    return number
