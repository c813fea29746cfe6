"""Arguments that `tune` and `bench` have in common."""

from __future__ import annotations

import argparse
import ast
from typing import Any


def add_factory(parser: argparse.ArgumentParser) -> None:
    """Adds the argument that names the function which makes the loader."""
    text = (
        "a function that returns a new DataLoader, and passes its keyword arguments to it; MODULE is the name of a "
        "module, or the path of a .py file"
    )
    parser.add_argument("factory", metavar="MODULE:FACTORY", help=text)


def add_seconds(parser: argparse.ArgumentParser, default: float) -> None:
    """Adds the time that the command may take."""
    text = f"how long all measurements may take together (default {default:g})"
    parser.add_argument("--seconds", type=seconds, default=default, metavar="S", help=text)


def add_step(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that simulate a training step."""
    text = "how long your program takes for each batch (default 0: the loader alone is measured)"
    parser.add_argument("--step", type=seconds, default=0.0, metavar="S", help=text)
    text = "your program computes during --step; without this option it waits, as for a GPU"
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
        raise argparse.ArgumentTypeError(f"{text}: write keyword arguments, such as num_workers=2") from None
