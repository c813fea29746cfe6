"""`python -m gluonloader tokens`: parses the arguments of `make`, `list` and `check`, and runs `list` and `check`."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, Final

import numpy as np

from ..errors import TokenError
from ..progress import ProgressBar
from ..text.tokens import TokenDataset
from .arguments import add_json, add_workers, at_least, describe
from .make_tokens import make
from .printing import show

_MAKE: Final = """\
  python -m gluonloader tokens make corpus.jsonl --tokenizer tokenizer.json --out corpus --end "<|endoftext|>"
  python -m gluonloader tokens make corpus/ more.jsonl.gz --tokenizer tokenizer.json --out corpus
  python -m gluonloader tokens make corpus.parquet --tokenizer tokenizer.json --out s3://bucket/corpus --key content
"""
_LIST: Final = """\
  python -m gluonloader tokens list corpus
  python -m gluonloader tokens list corpus --first 10 --json
"""
_CHECK: Final = """\
  python -m gluonloader tokens check corpus --vocabulary 50257
"""

_SHOWN: Final = 20  # errors
_AT_ONCE: Final = 4096  # documents that are read together
_CHUNK: Final = 1 << 20  # tokens that are counted together


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the commands to the parser of `tokens`; see `records.add_to`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = (
        "Tokenizes the documents of files with several processes, and writes OUT.bin and OUT.idx, which gluonloader "
        "and Megatron-LM can read. The files are the same for any number of processes.\n\n"
        "If it is interrupted, the same command continues where it has stopped."
    )
    command = commands.add_parser("make", help="tokenize texts into files")
    describe(command, text, _MAKE)
    kinds = (
        "a file, or a folder of files: .jsonl, a JSON object in each line; .txt, a document in each line; .parquet, a "
        "document in each row; .jsonl and .txt also compressed, as .gz or .zst; a document is a text, or a list of "
        "ints, which are tokens already"
    )
    command.add_argument("sources", metavar="SOURCE", nargs="+", help=kinds)
    command.add_argument("--out", required=True, help="path or URL of the files to write, with or without an ending")
    text = "a file of the library tokenizers, usually tokenizer.json; not needed if the file contains tokens"
    command.add_argument("--tokenizer", metavar="JSON", help=text)
    command.add_argument("--key", default="text", help="the field or the column with the text (default text)")
    text = "the token that ends each document: a token of the vocabulary, or its number (default: none is added)"
    command.add_argument("--end", metavar="TOKEN", help=text)
    dtype = "dtype of the tokens in the file (default: uint16 if the vocabulary has at most 65,536 tokens, else int32)"
    command.add_argument("--dtype", choices=["uint8", "int8", "int16", "uint16", "int32", "int64"], help=dtype)
    text = (
        "what to do with a row that contains no document: stop (raise, the default), or leave it out and end with exit "
        "status 1 (skip)"
    )
    command.add_argument("--on-error", choices=["raise", "skip"], default="raise", help=text)
    add_workers(command)
    add_json(command)
    command.set_defaults(run=make)

    command = commands.add_parser("list", help="print what a file of tokens contains")
    describe(command, "Prints the numbers of documents and tokens, and the lengths of the documents.", _LIST)
    command.add_argument("file", metavar="FILE", help="path of the files, with or without the ending")
    command.add_argument("--first", type=at_least(0), metavar="N", help="also print the first N documents")
    add_json(command)
    command.set_defaults(run=list_tokens)

    text = (
        "Checks whether the index belongs to the tokens, the index of every document and, with --vocabulary, its "
        "tokens. The exit status is 1 if something is damaged."
    )
    command = commands.add_parser("check", help="find damaged documents")
    describe(command, text, _CHECK)
    command.add_argument("file", metavar="FILE", help="path of the files, with or without the ending")
    text = "number of tokens in the vocabulary; other tokens are damage, and are counted"
    command.add_argument("--vocabulary", type=at_least(1), metavar="N", help=text)
    add_json(command)
    command.set_defaults(run=check)


def list_tokens(options: argparse.Namespace) -> int:
    """Prints what a file contains."""
    data = TokenDataset(options.file)
    lengths = np.asarray(data.lengths)
    about: dict[str, Any] = {
        "file": os.path.abspath(options.file),
        "documents": len(data),
        "tokens": data.num_tokens,
        "dtype": data.dtype.name,
        "median_length": float(np.median(lengths)) if len(lengths) else 0.0,
        "longest": int(lengths.max()) if len(lengths) else 0,
    }
    first = [data[index].tolist() for index in range(min(options.first or 0, len(data)))]
    if options.json:
        show(json.dumps({**about, "first": first} if options.first else about, indent=2))
        return 0
    show(f"{about['file']}: {len(data):,} documents, {data.num_tokens:,} tokens of {data.dtype.name}")
    show(f"tokens of a document: median {about['median_length']:,g}, at most {about['longest']:,}")
    show(*[f"document {index}: {' '.join(map(str, tokens))}" for index, tokens in enumerate(first)])
    return 0


def check(options: argparse.Namespace) -> int:
    """Prints a line for each of the first damaged documents, or why the index does not fit the tokens."""
    path, found, count, outside = os.path.abspath(options.file), list[str](), 0, 0
    try:
        data = TokenDataset(path, vocabulary=options.vocabulary)
    except TokenError as error:
        found.append(str(error))
    else:
        count = len(data)
        with ProgressBar(count, "documents") as progress:
            for start in range(0, count, _AT_ONCE):
                documents = range(start, min(start + _AT_ONCE, count))
                found += _errors_of(data, documents)
                progress.advance(len(documents))
        if options.vocabulary is not None:
            outside = _outside(TokenDataset(path), options.vocabulary)
    errors = list(dict.fromkeys(found))  # the neighbours of a damaged document fail with the same error
    if options.json:
        about = {"file": path, "documents": count, "errors": errors}
        show(json.dumps(about if options.vocabulary is None else {**about, "outside": outside}, indent=2))
    else:
        more = [f"... and {len(errors) - _SHOWN:,} more; --json prints all"] if len(errors) > _SHOWN else []
        show(*errors[:_SHOWN], *more)
        known = "" if options.vocabulary is None else f"; tokens outside of the vocabulary: {outside:,}"
        show(f"{path}: {count:,} documents{known}; errors: {len(errors):,}")
    return 1 if errors else 0


def _outside(data: TokenDataset, vocabulary: int) -> int:
    """The number of tokens that are not in a vocabulary of this size."""
    starts = range(0, data.num_tokens, _CHUNK)
    chunks = (data.read_tokens(np.array([start]), min(_CHUNK, data.num_tokens - start)) for start in starts)
    return sum(int(((tokens < 0) | (tokens >= vocabulary)).sum()) for tokens in chunks)


def _errors_of(data: TokenDataset, documents: range) -> list[str]:
    """The error text of each damaged document. All are read at once; if that fails, each half is read separately."""
    try:
        data.__getitems__(np.arange(documents.start, documents.stop))
    except TokenError as error:
        if len(documents) == 1:
            return [str(error)]
        middle = (documents.start + documents.stop) // 2
        return _errors_of(data, range(documents.start, middle)) + _errors_of(data, range(middle, documents.stop))
    return []
