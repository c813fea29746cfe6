"""`python -m gluonloader.mxnet script.py arg ...` runs a Gluon script unchanged, with gluonloader's classes."""

from __future__ import annotations

import argparse
import io
import logging
import os
import runpy
import sys
from types import ModuleType, TracebackType

from ..errors import MissingExtraError
from . import patch_numpy


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m gluonloader.mxnet",
        description="Runs a script that uses mxnet.gluon.data, with gluonloader's classes instead of MXNet's.",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is replaced")
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module, e.g. -m package.train")
    parser.add_argument("script", help="a Python file, or with -m the name of a module")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the arguments of the script")
    options = parser.parse_args()
    if not options.is_module and not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script}")
    if options.verbose:
        _log_to_stderr()
    patch_numpy()
    try:
        from .installing import install  # this imports MXNet, which needs the names that `patch_numpy` adds
    except MissingExtraError as error:
        parser.error(str(error))

    install()
    sys.excepthook = _show
    sys.argv = [options.script, *options.args]
    if options.is_module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        _run(options.script)


def _log_to_stderr() -> None:
    """Prints the log of the library. `logging.basicConfig` is not used, since the script could not call it again."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger = logging.getLogger("gluonloader")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _run(path: str) -> None:
    """Runs a file as `python path` does. `runpy.run_path` would delete the script's names before the program ends."""
    path = os.path.abspath(path)  # Python makes `__file__` absolute, too, but not sys.argv[0]
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)  # without the __future__ imports of this file
    script = ModuleType("__main__")
    script.__file__ = path
    vars(script)["__builtins__"] = __builtins__
    sys.modules["__main__"] = script
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):  # otherwise Python adds no folder
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    exec(code, vars(script))


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an error as `python script.py` does, without the frames of this file and of runpy."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
