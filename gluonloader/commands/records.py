"""`python -m gluonloader records`: the arguments of its commands, and `list`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

from ..errors import RecordError
from ..records import unpack
from ..records.frames import data_of, mapped, spans_of, starts_of
from ..records.index import index_path, read_index
from .check import check
from .make import make
from .printing import discard


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the commands to the parser of `records`; each sets `run`, which gets the options and returns the status."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Packs image files into OUT.rec and OUT.idx, which MXNet and gluonloader read."
    command = commands.add_parser("make", help="pack images into a .rec file", description=text)
    command.add_argument("out", metavar="OUT.rec", help="the file to write; the index is written beside it")
    command.add_argument(
        "source",
        metavar="FOLDER|LIST.lst",
        help="a folder whose folders are the classes: each folder that contains images gets the next label, in sorted "
        "order; or a list, as MXNet's im2rec writes it, with a line INDEX<tab>LABEL[<tab>LABEL...]<tab>PATH per image",
    )
    command.add_argument("--root", metavar="FOLDER", help="the folder of the paths in LIST.lst; by default its own")
    command.add_argument(
        "--resize",
        type=_at_least(1),
        metavar="PIXELS",
        help="shrink images so that the shorter side has this many pixels, and encode them as JPEG; by default, and if "
        "the image is not larger, files are packed unchanged, byte for byte",
    )
    command.add_argument("--quality", type=int, default=95, help="of JPEGs that are resized, 1 to 100 (default 95)")
    command.add_argument("--shuffle", action="store_true", help="write the images in random order")
    command.add_argument("--seed", type=_at_least(0), default=0, help="of the random order (default 0)")
    _add_workers(command)
    command.set_defaults(run=make)

    text = "Prints the number, the key, the size in bytes and the labels of records."
    command = commands.add_parser("list", help="print what a .rec file contains", description=text)
    command.add_argument("file", metavar="FILE.rec", help="its index is used if there is one")
    command.add_argument("--first", type=_at_least(0), metavar="N", help="only the first N records; by default all")
    command.set_defaults(run=list_records)

    text = "Reads and decodes every record, and names those that are damaged. The exit status is 1 if there are any."
    command = commands.add_parser("check", help="find damaged records", description=text)
    command.add_argument("file", metavar="FILE.rec", help="its index is checked, too, if there is one")
    command.add_argument("--no-decode", action="store_true", help="check only frames and index, not the images")
    _add_workers(command)
    command.set_defaults(run=check)


def list_records(options: argparse.Namespace) -> int:
    """Prints a line for each record, in the order of the index; ends if nobody reads the lines any more."""
    path = os.path.abspath(options.file)
    file, index = mapped(path), index_path(path)
    keys, offsets = read_index(index, str) if os.path.exists(index) else (None, starts_of(file, path))
    try:
        print("number\tkey\tbytes\tlabels")
        for number, start in enumerate(islice(offsets, options.first)):
            record = data_of(file, spans_of(file, start, len(file), path)[0])
            print(number, keys[number] if keys else "-", len(record), _labels(record), sep="\t")
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    return 0


def _labels(record: bytes) -> str:
    try:
        label: Any = unpack(record)[0].label
    except RecordError:
        return "-"
    return " ".join(f"{value:g}" for value in ([label] if isinstance(label, float) else label.tolist()))


def _add_workers(command: argparse.ArgumentParser) -> None:
    text = "worker processes; 0 for none (default: auto, which is at most one for each core)"
    command.add_argument("--num-workers", type=_number_or_auto, default="auto", metavar="N", help=text)


def _number_or_auto(text: str) -> int | str:
    return text if text == "auto" else _at_least(0, '"auto" or ')(text)


def _at_least(least: int, other: str = "") -> Callable[[str], int]:
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
