"""`python -m gluonloader records`: parses the arguments of `make`, `list` and `check`, and runs `list`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import islice
from typing import Any, Final

from ..errors import RecordError
from ..records import unpack
from ..records.frames import data_of, mapped, spans_of, starts_of
from ..records.index import index_path, read_index
from .arguments import add_json, add_workers, at_least, describe
from .check import check
from .make import make
from .printing import discard

_MAKE: Final = """\
  python -m gluonloader records make train.rec photos/train --resize 480 --shuffle
  python -m gluonloader records make train.rec train.lst --root photos
"""
_LIST: Final = """\
  python -m gluonloader records list train.rec --first 10
  python -m gluonloader records list train.rec --json | head
"""
_CHECK: Final = """\
  python -m gluonloader records check train.rec
  python -m gluonloader records check train.rec --no-decode --json
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the commands to the parser of `records`.

    Each command sets the option `run`: a function that is called with the options, and returns the exit status.
    """
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Packs image files into OUT.rec, and writes its index OUT.idx. MXNet and gluonloader can read both files."
    command = commands.add_parser("make", help="pack images into a .rec file")
    describe(command, text, _MAKE)
    command.add_argument(
        "out", metavar="OUT.rec", help="path or URL of the file to write; OUT.idx is written beside it"
    )
    command.add_argument(
        "source",
        metavar="FOLDER|LIST.lst",
        help="a folder that contains a folder for each class: each folder that contains images gets the next label, "
        "in sorted order; or a list, as MXNet's im2rec writes it: each line contains INDEX, one or more LABELs and "
        "PATH, separated by tabs",
    )
    root = "folder to which the paths in LIST.lst are relative (default: the folder of LIST.lst)"
    command.add_argument("--root", metavar="FOLDER", help=root)
    command.add_argument(
        "--resize",
        type=at_least(1),
        metavar="PIXELS",
        help="shrink each image whose shorter side has more than PIXELS pixels, so that it has PIXELS pixels, and "
        "encode the image as JPEG; all other files, and without this option all files, are packed unchanged",
    )
    quality = "quality of the JPEGs that --resize encodes, 1 to 100 (default 95)"
    command.add_argument("--quality", type=int, default=95, help=quality)
    command.add_argument("--shuffle", action="store_true", help="write the images in random order")
    command.add_argument("--seed", type=at_least(0), default=0, help="seed of the random order (default 0)")
    text = "what to do with an image that cannot be packed: skip it, print its error and end with exit status 1 "
    text += "(default), or end at once and write no file"
    command.add_argument("--on-error", choices=["skip", "raise"], default="skip", help=text)
    add_workers(command)
    add_json(command)
    command.set_defaults(run=make)

    text = "Prints the number, the key, the size in bytes and the labels of each record."
    command = commands.add_parser("list", help="print what a .rec file contains")
    describe(command, text, _LIST)
    text = "path of the .rec file; if it has an index, the records are printed in the order of the index"
    command.add_argument("file", metavar="FILE.rec", help=text)
    text = "print only the first N records (default: all records)"
    command.add_argument("--first", type=at_least(0), metavar="N", help=text)
    add_json(command, "print a JSON object for each record, in a line of its own")
    command.set_defaults(run=list_records)

    text = "Reads and decodes every record, and lists the damaged records. The exit status is 1 if a record is damaged."
    command = commands.add_parser("check", help="find damaged records")
    describe(command, text, _CHECK)
    text = "path of the .rec file; if it has an index, the index is also checked"
    command.add_argument("file", metavar="FILE.rec", help=text)
    command.add_argument("--no-decode", action="store_true", help="check only the frames and the index, not the images")
    add_workers(command)
    add_json(command)
    command.set_defaults(run=check)


def list_records(options: argparse.Namespace) -> int:
    """Prints a line for each record, in the order of the index, or of the file if it has no index.

    It ends if nobody reads the lines any more, as with `list x.rec | head`.
    """
    path = os.path.abspath(options.file)
    file, index = mapped(path), index_path(path)
    keys, offsets = read_index(index, str) if os.path.exists(index) else (None, starts_of(file, path))
    try:
        if not options.json:
            print("number\tkey\tbytes\tlabels")
        for number, start in enumerate(islice(offsets, options.first)):
            record = data_of(file, spans_of(file, start, len(file), path)[0])
            key, labels = keys[number] if keys else None, _labels(record)
            if options.json:
                print(json.dumps({"number": number, "key": key, "bytes": len(record), "labels": labels}))
            else:
                listed = "-" if labels is None else " ".join(f"{label:g}" for label in labels)
                print(number, "-" if key is None else key, len(record), listed, sep="\t")
        print(end="", flush=True)
    except BrokenPipeError:
        discard(sys.stdout)
    return 0


def _labels(record: bytes) -> list[float] | None:
    """The labels of a record; None if its header cannot be read."""
    try:
        label: Any = unpack(record)[0].label
    except RecordError:
        return None
    return [label] if isinstance(label, float) else label.tolist()
