"""Parses the arguments, runs a topic, and prints its tables: `python -m benchmarks TOPIC`."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from .harness import Table, Topic, text_of
from .report import machine

TOPICS: Final = (
    "comparison", "actors", "balance", "bulk", "dlio", "first", "images", "keeping", "ndarrays", "scale", "serving",
    "sharing", "stations", "stores", "text", "tuning",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the topic that the first argument names; without such a name, the comparison with other loaders."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given.pop(0) if given and given[0] in TOPICS else TOPICS[0]
    module = importlib.import_module(f"benchmarks.{name}")
    topic: Topic = module.TOPIC
    options = _parser(name, topic, module.__doc__ or "").parse_args(given)
    options.names = options.names or list(topic.names)
    options.about = (
        f"{machine(topic.packages)}\n{options.workers} workers, {options.rounds} rounds\n"
        f"python -m benchmarks {shlex.join([name, *given])}"
    )
    print(f"{options.about}\n", flush=True)
    for part in topic.run(options):
        print(text_of(part, options.rounds) if isinstance(part, Table) else part, end="\n\n", flush=True)


def _parser(name: str, topic: Topic, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=about,
        epilog=f"topics: {', '.join(TOPICS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if topic.names:
        choices = f"of {', '.join(topic.names)} (default: all)"
        parser.add_argument("names", nargs="*", choices=[[], *topic.names], metavar="NAME", help=choices)
    else:
        parser.set_defaults(names=[])
    parser.add_argument("--rounds", type=_positive, default=topic.rounds, help="rounds (default %(default)s)")
    parser.add_argument("--workers", type=_positive, default=2, help="workers of a loader (default %(default)s)")
    for option, (default, what) in topic.options.items():
        flag = f"--{option.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=what)
        else:
            kind = str if default is None else type(default)
            parser.add_argument(flag, type=kind, default=default, help=f"{what} (default %(default)s)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be at least 1")
    return number


if __name__ == "__main__":
    main()
