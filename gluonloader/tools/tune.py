"""`python -m gluonloader tune`: finds the best arguments of a loader."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, fields
from typing import Final

from ..describe import counted
from ..progress import ProgressBar
from .arguments import add_factory, add_json, add_seconds, add_step, describe
from .factory import load_factory
from .pictures import check_path
from .printing import show
from .tuning.setting import Setting
from .tuning.trial import Trial
from .tuning.tuner import Tuning, tune

_DESCRIPTION: Final = (
    "Finds the fastest arguments of DataLoader for your data. It measures a loader with "
    "different values of num_workers, executor, concurrency, prefetch and start_method, and prints a "
    "table of speeds. The last line shows the arguments to pass to DataLoader.\n\n"
    "Each trial runs in a forked process, so the module must not use a GPU when it is imported."
)
_EXAMPLES: Final = """\
  python -m gluonloader tune train:make            tunes the loader that make() in train.py returns:
                                                     def make(**options):
                                                         return DataLoader(dataset, 64, **options)
  python -m gluonloader tune train:make --seconds 120 --memory 1GB --plot tuning.png
  python -m gluonloader tune train:make --step 0.05          for a GPU that takes 50 ms for a batch
  python -m gluonloader tune train:make --step 0.05 --busy   for a program that computes 50 ms for a batch
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and the option `run`: a function that returns the exit status."""
    describe(parser, _DESCRIPTION, _EXAMPLES)
    add_factory(parser)
    add_seconds(parser, 60)
    text = "the maximum shared memory for batches of worker processes, for example 256MB (default: no limit)"
    parser.add_argument("--memory", metavar="BYTES", help=text)
    add_step(parser)
    text = "do not try executor='thread' and concurrency, for a dataset that several threads must not read"
    parser.add_argument("--no-threads", action="store_true", help=text)
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draw the speeds into a .png, .svg or .pdf file; needs matplotlib"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures, and prints what was found."""
    if options.plot:
        check_path(options.plot)  # now, not after a minute
    with redirect_stdout(sys.stderr):  # for what the module of the factory prints
        tuning = _tuned(options)
    show(json.dumps(_as_json(tuning), indent=2) if options.json else str(tuning))
    if options.plot:
        tuning.plot(options.plot)
    return 0


def _tuned(options: argparse.Namespace) -> Tuning:
    factory = load_factory(options.factory, accepts=(field.name for field in fields(Setting)))
    spent_s, trials = 0.0, 0
    with ProgressBar(round(options.seconds), "seconds") as progress:

        def show_trial(trial: Trial) -> None:
            nonlocal spent_s, trials
            spent_s, trials = spent_s + trial.took_s, trials + 1
            progress.reach(round(spent_s), counted(trials, "trial", "trials"))

        return tune(
            factory, options.seconds, options.memory, options.step, options.busy, not options.no_threads, show_trial
        )


def _as_json(tuning: Tuning) -> dict[str, object]:
    trials = [asdict(trial) for trial in tuning.trials]
    return {"line": tuning.line, "took_s": tuning.took_s, "best": asdict(tuning.best), "trials": trials}
