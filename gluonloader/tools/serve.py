"""`python -m gluonloader serve`: serves a loader to the programs that call `gluonloader.attach`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from ..replacing import replacing
from ..serving.server import Server, serve
from .arguments import at_least, describe, keywords
from .factory import load_factory
from .printing import show

_DESCRIPTION: Final = (
    "Makes the batches of a loader for several programs on this machine. Each of them reads the batches with "
    "gluonloader.attach(NAME). The command ends on Ctrl-C or SIGTERM, or if its workers cannot start."
)
_EXAMPLES: Final = """\
  python -m gluonloader serve train:make --name images      serves the loader that make() in train.py returns:
                                                              def make(**options):
                                                                  return DataLoader(dataset, 64, **options)
  python -m gluonloader serve train:make --name images --slow skip --with "num_workers=8"
  python -m gluonloader serve train:make --name images --state images.json    continues after a restart
"""
_SAVING_S: Final = 10.0  # how often the position is written to the file


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and the option `run`: a function that returns the exit status."""
    describe(parser, _DESCRIPTION, _EXAMPLES)
    text = "a function that returns a new DataLoader; MODULE is the name of a module, or the path of a .py file"
    parser.add_argument("factory", metavar="MODULE:FACTORY", help=text)
    parser.add_argument("--name", required=True, help="the name by which programs attach")
    text = "wait: the programs wait for a slow one (default); skip: a slow program misses batches"
    parser.add_argument("--slow", choices=["wait", "skip"], default="wait", help=text)
    text = "wait until N programs have attached before the first batch is made (default 1)"
    parser.add_argument("--consumers", type=at_least(1), default=1, metavar="N", help=text)
    text = "keyword arguments for the factory"
    parser.add_argument("--with", type=keywords, default={}, dest="arguments", metavar="ARGUMENTS", help=text)
    text = "a file for the state: the command loads it at the start if it exists, "
    text += f"and saves it every {_SAVING_S:g} s and at the end"
    parser.add_argument("--state", type=Path, metavar="FILE", help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until it is interrupted."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        return _run(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(options: argparse.Namespace) -> int:
    with load_factory(options.factory)(**options.arguments) as loader:
        if options.state is not None and options.state.exists():
            loader.load_state_dict(options.state.read_text())
        with serve(loader, options.name, options.slow, options.consumers) as server:
            _save(server, options.state)  # now, so that a state that cannot be saved is an error at the start
            try:
                show(f"serving {options.name!r} (pid {os.getpid()}); attach with gluonloader.attach({options.name!r})")
                sys.stdout.flush()
                _wait(server, options.state)
            except KeyboardInterrupt:
                show(str(server.stats()))
            finally:
                server.close()
                _save(server, options.state)
    return 0


def _wait(server: Server, state: Path | None) -> None:
    while not server.wait(None if state is None else _SAVING_S):
        _save(server, state)


def _save(server: Server, state: Path | None) -> None:
    """Writes the position; a reader of the file never sees half of it."""
    if state is not None:
        try:
            text = json.dumps(server.state_dict())
        except TypeError as error:
            raise ValueError(f"--state: {error}; remove --state") from None
        with replacing(str(state)) as (new,):
            Path(new).write_text(text)


def _end(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
