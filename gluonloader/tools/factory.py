"""Finds the function `module:factory` that a command gets as an argument; the function makes a DataLoader.

def make(**options):
    return DataLoader(dataset, 64, **options)
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import a_class, text_of
from ..loader import DataLoader
from .tuning.of_torch import adapted, torchs_of
from .tuning.trial import check_workers

_PASS_ALL = "write `def make(**options): return DataLoader(dataset, 64, **options)`"


class FactoryError(ValueError):
    """The factory cannot be found or does not do what commands need. Errors of its own code are not replaced."""


def load_factory(text: str, accepts: Iterable[str] = ()) -> Callable[..., DataLoader[Any]]:
    """Imports the factory that `text` names; the current folder is searched first.

    Args:
        text: `module:function` or `path/to/file.py:function`. The function returns a new DataLoader at each call. It
            passes its keyword arguments to that DataLoader.
        accepts: names of arguments that the function must accept.

    Returns:
        The factory. A call raises a FactoryError if the function does not accept one of the arguments, or if it returns
        something that is not a DataLoader.

    Raises:
        FactoryError: there is no such module, file or function; importing it has raised an error; or the function does
            not accept an argument of `accepts`.
    """
    place, colon, name = text.rpartition(":")
    if not (place and colon and name):
        raise FactoryError(f"{text}: write MODULE:FUNCTION or FILE.py:FUNCTION, for example train:make_loader")
    module = _import_file(place) if place.endswith(".py") else _import(place, os.getcwd())
    function = getattr(module, name, None)
    if function is None:
        functions = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
        known = [key for key, value in functions.items() if value.__module__ == module.__name__]
        raise FactoryError(f"{text}: {place} has no function {name}; it has {', '.join(known) or 'no functions'}")
    if not callable(function):
        raise FactoryError(f"{text}: {name} is {a_class(function)}; {_PASS_ALL}")
    try:
        _check_signature(text, function, dict.fromkeys(accepts))
    except FactoryError:
        if torchs_of(function) is None:
            raise
    return checked(text, function)


def checked(text: str, function: Callable[..., Any]) -> Callable[..., DataLoader[Any]]:
    """A factory that raises a FactoryError as `load_factory` says; `text` is its name."""
    last: weakref.ref[DataLoader[Any]] | None = None
    make_any = adapted(function)

    def make(**options: Any) -> DataLoader[Any]:
        nonlocal last
        try:
            loader = make_any(**options)
        except TypeError as error:
            _check_signature(text, function, options)
            found = re.search(r"got multiple values for (?:keyword )?argument '(\w+)'", str(error))
            if found is None or found[1] not in options:
                raise
            cure = f"DataLoader(dataset, 64, **{{'{found[1]}': ..., **options}})"
            raise FactoryError(f"{text}: it sets {found[1]}, but the command varies it; write {cure}") from None
        if not isinstance(loader, DataLoader):
            raise FactoryError(f"{text}: it returned {type(loader)}, not a gluonloader.DataLoader; {_PASS_ALL}")
        check_workers(loader, options)
        if last is not None and last() is loader:
            raise FactoryError(f"{text}: it returned the same DataLoader twice; make a new one at each call")
        last = weakref.ref(loader)
        return loader

    return make


def _check_signature(text: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function that is not written in Python
        return
    for name in options:
        try:
            signature.bind_partial(**{name: None})
        except TypeError:
            raise FactoryError(f"{text}: it does not accept the argument {name}; {_PASS_ALL}") from None
    try:
        signature.bind(**options)
    except TypeError as error:
        raise FactoryError(f"{text}: {error}; give the argument a default value") from None


def _import_file(path: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise FactoryError(f"{path}: there is no such file")
    module = _import(file.stem, str(file.parent))  # by its name, so that worker processes can import it, too
    origin = getattr(module, "__file__", None)
    if origin is None or not file.samefile(origin):
        raise FactoryError(f"{path}: another module has the name {file.stem} ({origin}); rename the file")
    return module


def _import(name: str, folder: str) -> ModuleType:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            where = f"neither in {folder} nor among the installed modules"
            raise FactoryError(f"{name}: there is no module {missing}, {where}") from None
        what = f"importing it raised {type(error).__name__}: {text_of(error)}"
        raise FactoryError(f"{name}: {what}{_place_of(error)}") from error


def _place_of(error: BaseException) -> str:
    """Where an error was raised, as the end of a sentence; "" if it was not raised in a file."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "" if last.filename.startswith("<") else f" ({last.filename}, line {last.lineno})"
