"""The main script of the program, which workers under spawn and forkserver import before they unpickle the dataset.

`multiprocessing` imports it in a new process before any code of this package runs there, and prints the error if that
fails. So processes that are started by `without_main` do not import it. Instead, the worker does, and reports an error
to the loader like any other error of its start.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import spawn
from types import FunctionType, SimpleNamespace, TracebackType
from typing import Any, Final

from ...errors import add_note

# Keys of the data that describe the main script for `spawn.prepare`.
_NAME: Final = "init_main_from_name"
_PATH: Final = "init_main_from_path"


def main_script() -> dict[str, str]:
    """What `import_main` needs; empty if no worker can import `__main__`: in a notebook or on standard input."""
    data = spawn.get_preparation_data("")
    name, path = data.get(_NAME), data.get(_PATH)
    if name is not None:  # `python -m module`; `python -m package` has a name that is not imported
        return {} if name.rpartition(".")[2] == "__main__" else {_NAME: name}
    return {_PATH: path} if path is not None and os.path.isfile(path) else {}


def without_main(popen: type[Any]) -> type[Any]:
    """A subclass of a `Popen` of `multiprocessing` whose processes do not import the main script."""
    # `_launch` has no parameter for these data, so it gets its own name `spawn`.
    names = {**vars(spawn), "get_preparation_data": _data_without_main}
    own_globals = {**popen._launch.__globals__, "spawn": SimpleNamespace(**names)}
    return type("Popen", (popen,), {"_launch": FunctionType(popen._launch.__code__, own_globals)})


def _data_without_main(name: str) -> dict[str, Any]:
    return {key: value for key, value in spawn.get_preparation_data(name).items() if key not in (_NAME, _PATH)}


def import_main(main: Mapping[str, str]) -> None:
    """Imports the main script in a worker. An error of the script gets a note with the cure."""
    process: Any = multiprocessing.current_process()
    process._inheriting = True  # `multiprocessing` starts no process meanwhile
    try:
        spawn.prepare({**main})
    except BaseException as error:
        script = main.get(_PATH) or f"module {main[_NAME]}"
        cure = (
            """put the code that workers must not run under `if __name__ == "__main__":`, or pass start_method='fork'"""
        )
        add_note(error, f"gluonloader: each worker imports the main script, {script}: {cure}")
        error.__traceback__ = _in_script(error.__traceback__)
        raise error
    finally:
        del process._inheriting
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the script may have set another handler


def imports_main() -> bool:
    """Whether this process is a worker that imports the main script at this moment."""
    process = multiprocessing.current_process()
    return process.daemon and getattr(process, "_inheriting", False)


def explain_missing(error: AttributeError) -> None:
    """Adds a note with the cure to the error of a pickle that needs a name which the main script does not define."""
    text, main = str(error), sys.modules["__main__"]
    before_3_14 = text.startswith("Can't get attribute") and repr(main) in text
    if before_3_14 or error.obj is main:
        cure = 'define it at the top level of the script, not under `if __name__ == "__main__":`, or in a module'
        add_note(
            error, f"gluonloader: workers import the main script, which does not define this name for them: {cure}"
        )


def _in_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames above the script."""
    step = trace
    while step is not None and step.tb_frame.f_globals.get("__name__") != "__mp_main__":
        step = step.tb_next
    return step or trace
