"""Runs a script as `python script.py` does, after a loader of another library was replaced by gluonloader's."""

from __future__ import annotations

import argparse
import builtins
import functools
import io
import logging
import os
import runpy
import sys
from collections.abc import Callable, Container
from types import ModuleType, TracebackType

from ..errors import MissingExtraError, logger
from ..wire.greeting import library_version
from .report import Report


def run_script(package: str, library: str, install: Callable[[], object]) -> None:
    """The command line `python -m package [options] script.py arg ...`, or `-m module arg ...`.

    When the script ends, a line on standard error says what it has gained; see report.py.

    Args:
        package: the package of gluonloader that is run, e.g. "gluonloader.torch".
        library: what the script uses, e.g. "torch.utils.data".
        install: replaces the loader; it may raise MissingExtraError.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=f"Runs a script that uses {library}, with gluonloader's classes instead.",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is replaced")
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=os.environ.get("GLUONLOADER_QUIET", "0") not in ("", "0"),
        help="print nothing when the script ends; GLUONLOADER_QUIET=1 does the same",
    )
    parser.add_argument("--stats", action="store_true", help="print the statistics of each loader when the script ends")
    parser.add_argument("--version", action="version", version=f"gluonloader {library_version()}")
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module, e.g. -m package.train")
    help_of_script = "a Python file, or with -m the name of a module; then the arguments of the script"
    parser.add_argument("script", nargs=argparse.PARSER, help=help_of_script)  # with REMAINDER, a first "--" is lost
    options = parser.parse_args()
    script = options.script[0]
    if not options.is_module and not os.path.isfile(script):
        parser.error(f"there is no file {script}")
    if options.verbose:
        _log_to_stderr()
    try:
        install()
    except MissingExtraError as error:
        parser.error(str(error))

    if options.stats or not options.quiet:
        Report(library, options.stats).begin()
    starters = {sys.modules["__main__"].__file__, __file__, "<frozen runpy>", runpy.__file__}
    sys.excepthook = functools.partial(_show, starters)
    sys.argv = options.script
    if options.is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        _run(script)


def _log_to_stderr() -> None:
    """Prints the log of the library. `logging.basicConfig` is not used, since the script could not call it again."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    log = logger()
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _run(path: str) -> None:
    """Runs a file as `python path` does. `runpy.run_path` would delete the script's names before the program ends."""
    path = os.path.abspath(path)  # Python makes `__file__` absolute, too, but not sys.argv[0]
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)  # without the __future__ imports of this file
    script = ModuleType("__main__")
    script.__file__ = path
    vars(script)["__builtins__"] = builtins  # a module, as in a script; here, `__builtins__` is a dict
    sys.modules["__main__"] = script
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):  # otherwise Python adds no folder
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    exec(code, vars(script))


def _show(
    starters: Container[str | None], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints an error as `python script.py` does, without the frames of the files that started the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename in starters:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
