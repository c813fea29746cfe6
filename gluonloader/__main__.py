"""The command line: `python -m gluonloader records make | list | check`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .commands import records
from .errors import GluonLoaderError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 if something is damaged, 2 if the command cannot run."""
    parser = argparse.ArgumentParser("python -m gluonloader", description="Tools of gluonloader.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    records.add_to(commands.add_parser("records", help="make, list and check RecordIO files (.rec)"))
    options = parser.parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `list | head` ends like this; the interpreter would write to the pipe again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (GluonLoaderError, OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
