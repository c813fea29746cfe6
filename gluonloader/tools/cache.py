"""`python -m gluonloader cache`: shows, fills and empties the folder of a `NodeCache`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from glob import has_magic
from itertools import accumulate
from typing import Any, Final

from ..dataset.files import FileDataset
from ..declared import needed_blocks
from ..errors import bad_argument
from ..progress import ProgressBar
from ..records import RecordFileDataset
from ..stores.bounds import DEFAULT
from ..stores.cache import CacheStats, Needed, NodeCache
from ..stores.client import look
from ..stores.folder import contained, empty, space_of
from ..stores.objects import Block
from ..text import TokenDataset
from ..units import size
from .arguments import add_json, describe
from .printing import show

_STATUS: Final = "  python -m gluonloader cache status /scratch/cache\n"
_WARM: Final = """\
  python -m gluonloader cache warm /scratch/cache --limit "500 GB" s3://bucket/train.rec
"""
_CLEAR: Final = "  python -m gluonloader cache clear /scratch/cache\n"
_CHUNK: Final = 64  # blocks that are asked for at once


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the commands; each sets the option `run`: a function that returns the exit status."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Shows how much of the disk a cache uses and, if a program uses it now, what it has done."
    command = commands.add_parser("status", help="show what a cache contains and does")
    describe(command, text, _STATUS)
    command.add_argument("folder", metavar="FOLDER", help="the folder of the cache")
    add_json(command)
    command.set_defaults(run=status)

    text = "Fetches as much of the objects as the cache has room for, so that the first epoch is fast."
    command = commands.add_parser("warm", help="fetch objects before a program needs them")
    describe(command, text, _WARM)
    command.add_argument("folder", metavar="FOLDER", help="the folder of the cache")
    text = "URLs of .rec files with their .idx files, or of .bin files of tokens; or patterns for single files"
    command.add_argument("urls", metavar="URL", nargs="+", help=text)
    command.add_argument("--limit", required=True, help="the same limit as in the program")
    command.add_argument("--block", default=DEFAULT, help="the same size of blocks as in the program")
    text = "how long to wait for a block before the command ends with an error (default 120)"
    command.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help=text)
    command.set_defaults(run=warm)

    text = "Removes all blocks of a cache that no program uses. Files that are not the cache's stay."
    command = commands.add_parser("clear", help="remove what a cache contains")
    describe(command, text, _CLEAR)
    command.add_argument("folder", metavar="FOLDER", help="the folder of the cache")
    command.set_defaults(run=clear)


def status(options: argparse.Namespace) -> int:
    folder = os.path.abspath(options.folder)
    found, counts = contained(folder), look(folder)
    stats = None if counts is None else CacheStats(**counts)
    if options.json:
        show(json.dumps({"folder": folder, **asdict(found), "stats": stats and asdict(stats)}))
        return 0
    show(f"{folder}: {found.blocks:,} blocks of {found.objects:,} objects, {size(found.nbytes)}")
    show("no program uses it now" if stats is None else f"{stats}; fetched by process {stats.pid}")
    return 0


def warm(options: argparse.Namespace) -> int:
    cache = NodeCache(options.folder, options.limit, block=options.block, timeout=options.timeout)
    needed = [one for url in options.urls for one in _all_of(url, cache)]
    blocks = sorted((block for one in needed for block in one.blocks), key=lambda block: block.priority, reverse=True)
    ends = accumulate(space_of(block.stop - block.start) for block in blocks)
    stay = {block for block, end in zip(blocks, ends, strict=True) if end <= cache.options.limit}
    with ProgressBar(len(stay), "blocks") as progress:
        for done, _ in enumerate(_read(needed, stay), 1):
            progress.reach(done)
    show(f"{len(stay):,} of {len(blocks):,} blocks are in {cache.folder}. {cache.stats()}")
    return 0


def _all_of(url: str, cache: NodeCache) -> list[Needed]:
    """All blocks of an object."""
    ending = os.path.splitext(url)[1]
    data: Any
    if has_magic(url):
        data = FileDataset(url, cache=cache)
    elif ending == ".rec":
        data = RecordFileDataset(url, cache=cache)
    elif ending == ".bin":
        data = TokenDataset(url, cache=cache)
    else:
        right = "must be that of a .rec file, or of a .bin file of tokens, or a pattern for single files, such as"
        raise bad_argument("URL", url, f'{right} "s3://bucket/**/*.jpg"')
    return needed_blocks(data, range(len(data)))


def _read(needed: list[Needed], stay: set[Block]) -> Iterator[object]:
    """Reads these blocks of the objects, several at a time."""
    for one in needed:
        blocks = [block for block in one.blocks if block in stay]
        for start in range(0, len(blocks), _CHUNK):
            yield from one.cache.reader.open(blocks[start : start + _CHUNK], one.remotes)


def clear(options: argparse.Namespace) -> int:
    removed = empty(os.path.abspath(options.folder))
    show(f"removed {removed.blocks:,} blocks, {size(removed.nbytes)}")
    return 0
