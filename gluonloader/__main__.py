"""The command line: `python -m gluonloader bench | cache | doctor | plot | records | serve | tokens | tune`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from .errors import GluonLoaderError
from .tools import bench, cache, plot, records, serve, tokens, tune
from .tools.doctor import command as doctor
from .wire.greeting import library_version


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 if it found damage or a problem, 2 if the command cannot run."""
    parser = argparse.ArgumentParser("python -m gluonloader", description="Tools of gluonloader.")
    parser.add_argument("--version", action="version", version=f"gluonloader {library_version()}")
    commands = parser.add_subparsers(metavar="COMMAND")
    bench.add_to(commands.add_parser("bench", help="measure a DataLoader, also against torch's"))
    cache.add_to(commands.add_parser("cache", help="show, fill and empty the local cache of object stores"))
    doctor.add_to(commands.add_parser("doctor", help="check a machine and a dataset, and say what to change"))
    plot.add_to(commands.add_parser("plot", help="draw a trace that DataLoader.trace has written"))
    records.add_to(commands.add_parser("records", help="make, list and check RecordIO files (.rec)"))
    serve.add_to(commands.add_parser("serve", help="serve a DataLoader to several programs"))
    tokens.add_to(commands.add_parser("tokens", help="make, list and check files of tokens (.bin, .idx)"))
    tune.add_to(commands.add_parser("tune", help="find the fastest arguments of a DataLoader"))
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help(sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names of files that are not UTF-8
    try:
        return int(options.run(options))
    except (GluonLoaderError, OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
