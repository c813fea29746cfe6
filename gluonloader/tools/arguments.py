"""What several commands have in common: arguments, and the form of their help."""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections.abc import Callable
from typing import Any, Final

_WIDTH: Final = 88  # characters in a line of a description


def describe(parser: argparse.ArgumentParser, text: str, examples: str) -> None:
    """Sets what the help shows above and below the arguments; the examples keep their lines."""
    parser.description = "\n\n".join(textwrap.fill(part, _WIDTH) for part in text.split("\n\n"))
    parser.epilog = f"examples:\n{examples}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def add_json(parser: argparse.ArgumentParser, what: str = "print the result as JSON") -> None:
    """Adds the option `--json`."""
    parser.add_argument("--json", action="store_true", help=what)


def add_factory(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Adds the argument that names the function which makes the loader; with "?" it may be left out."""
    text = (
        "a function that passes its keyword arguments to a new DataLoader, and returns this loader; MODULE is the name "
        "of a module, or the path of a .py file"
    )
    parser.add_argument("factory", nargs=nargs, metavar="MODULE:FACTORY", help=text)


def add_seconds(parser: argparse.ArgumentParser, default: float) -> None:
    """Adds the time that the command may take."""
    text = f"the budget: how many seconds all measurements may take together (default {default:g})"
    parser.add_argument("--seconds", type=seconds, default=default, metavar="S", help=text)


def add_step(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that simulate a training step."""
    text = "how many seconds your program takes for each batch (default 0: only the loader is measured)"
    parser.add_argument("--step", type=seconds, default=0.0, metavar="S", help=text)
    text = "your program computes on one core during --step; without this option it waits, as for a GPU"
    parser.add_argument("--busy", action="store_true", help=text)


def seconds(text: str) -> float:
    """A type of arguments: a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds that is at least 0")
    return number


def keywords(text: str) -> dict[str, Any]:
    """A type of arguments: keyword arguments as in Python.

    >>> keywords("num_workers=2, executor='thread'")
    {'num_workers': 2, 'executor': 'thread'}
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        found = {item.arg or "**": ast.literal_eval(item.value) for item in call.keywords}
        if "**" in found:
            raise ValueError
        return found
    except (SyntaxError, ValueError):
        right = "write keyword arguments, such as num_workers=2, executor='thread'"
        raise argparse.ArgumentTypeError(f"{text}: {right}") from None


def add_workers(command: argparse.ArgumentParser) -> None:
    """Adds the number of worker processes."""
    text = "number of worker processes: 0 for none, auto for at most one process per core (default: auto)"
    command.add_argument("--num-workers", type=number_or_auto, default="auto", metavar="N", help=text)


def number_or_auto(text: str) -> int | str:
    """A type of arguments: a number of workers, or "auto"."""
    return text if text == "auto" else at_least(0, '"auto" or ')(text)


def at_least(least: int, other: str = "") -> Callable[[str], int]:
    """A type of arguments: an int that is not less than `least`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text}: must be {other}an int that is at least {least}")
        return number

    return parse
