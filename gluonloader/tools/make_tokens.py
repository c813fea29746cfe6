"""`python -m gluonloader tokens make`: tokenizes texts with the workers of a DataLoader, and continues after a stop.

    files --pieces--> workers: texts --> tokens --in order--> OUT.bin.part, OUT.idx.part, OUT.progress

NOTE [continuing]: the pieces depend only on the files, and are written in their order. So the result is the same for
any number of workers. After each piece, OUT.progress is replaced as a whole. It says where the piece ends in its file,
and what was written in all. A new run cuts OUT.bin.part and OUT.idx.part to that size, and continues at that place.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ..batchify import AsList
from ..errors import import_extra
from ..interrupts import Uninterrupted
from ..loader import DataLoader
from ..messages import message
from ..progress import ProgressBar
from ..replacing import replacing
from ..stores.objects import is_url
from ..stores.writing import writable
from ..text.token_files import map_tokens, without_ending, write_index
from ..text.tokens import TokenDataset
from .printing import show
from .sources import FilePiece, FilePlace, Pieces, find_files, is_json, is_table

_LARGEST_UINT16: Final = 1 << 16
_SHOWN: Final = 10  # rows that were left out and are named
_START: Final = FilePlace()


@message(frozen=True)
class _Recipe:
    """What the files are made of; a run continues another one only if these are the same.

    Attributes:
        files: a hash of the paths, sizes and times of the files.
        tokenizer: a hash of the file, "" if there is none.
    """

    files: str
    tokenizer: str
    key: str
    end: int | None
    dtype: str


@message(frozen=True)
class _Progress:
    """How much was read and written; see NOTE [continuing]."""

    place: FilePlace = _START
    documents: int = 0
    tokens: int = 0
    skipped: int = 0


@message(frozen=True)
class _Tokenized:
    """The documents of a piece, and the errors of its rows that contain none."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]
    errors: list[str]
    end: FilePlace


class Tokenizing:
    """A dataset whose keys are pieces, and whose samples are their documents, tokenized."""

    def __init__(self, key: str, tokenizer: str | None, end: int | None, dtype: str, on_error: str) -> None:
        self._key, self._path, self._dtype, self._on_error = key, tokenizer, np.dtype(dtype), on_error
        self._ends = np.array([] if end is None else [end], dtype)
        self._tokenizer: Any = None  # each process loads its own

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tokenizer": None}

    def __getitem__(self, piece: FilePiece) -> _Tokenized:
        names, documents, errors = list[str](), list[Any](), list[str]()
        for number, row in enumerate(piece.rows):
            if not is_table(piece.path) and not row.strip():
                continue  # an empty line
            name = piece.name(number)
            try:
                documents.append(self._document(piece.path, row))
                names.append(name)
            except ValueError as error:
                if self._on_error == "raise":
                    right = "correct the row, pass another --key, or pass --on-error skip"
                    raise ValueError(f"{name} {error}; {right}") from None
                errors.append(f"{name} {error}")
        tokens = list(map(self._tokens, names, self._tokenized(piece.path, documents)))
        joined = np.concatenate([np.empty(0, self._dtype), *tokens])
        return _Tokenized(joined, np.array(list(map(len, tokens)), np.int64), errors, piece.end)

    def _document(self, path: str, row: Any) -> Any:
        """The text or the tokens of a row.

        Raises:
            ValueError: the row contains neither; the text says what is wrong with it.
        """
        try:
            if is_table(path):
                document = row.as_py()
            else:
                document = json.loads(row.decode())[self._key] if is_json(path) else row.decode().rstrip("\r\n")
            if isinstance(document, str):
                document.encode()  # half of a surrogate pair is no text
        except UnicodeError as error:
            raise ValueError(f"is not UTF-8 ({error})") from None
        except (ValueError, KeyError, TypeError) as error:
            what = f"is no JSON object with a field {self._key!r}"
            raise ValueError(f"{what} ({type(error).__name__}: {error})") from None
        if isinstance(document, str):
            return document
        with suppress(ValueError, OverflowError):  # e.g. lists of several lengths
            tokens = np.asarray(document)
            if tokens.ndim == 1 and (tokens.dtype.kind in "iu" or not tokens.size):
                return tokens
        raise ValueError(f"contains {document!r:.50}, neither a text nor a list of ints")

    def _tokenized(self, path: str, documents: list[Any]) -> list[Any]:
        """The tokens of each document, whether it is a text or has tokens already."""
        texts = [document for document in documents if isinstance(document, str)]
        if texts and self._path is None:
            raise ValueError(f"{path} contains texts; pass --tokenizer tokenizer.json")
        if texts and self._tokenizer is None:
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
            self._tokenizer = load_tokenizer(str(self._path))
        encoded = iter(self._tokenizer.encode_batch(texts, add_special_tokens=False) if texts else ())
        return [next(encoded).ids if isinstance(document, str) else document for document in documents]

    def _tokens(self, name: str, document: Any) -> NDArray[Any]:
        tokens, limits = np.asarray(document), np.iinfo(self._dtype)
        if tokens.size and not limits.min <= (least := int(tokens.min())) <= (most := int(tokens.max())) <= limits.max:
            token = least if least < limits.min else most
            raise ValueError(f"{name} has the token {token}, which does not fit in {self._dtype.name}; pass --dtype")
        return np.concatenate([tokens.astype(self._dtype), self._ends])


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a file.

    Raises:
        ValueError: it is no such file.
    """
    tokenizers = import_extra("tokenizers", "text")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(f"--tokenizer {path}: {error}; pass a file of the library tokenizers") from error
    tokenizer.no_truncation()  # the file may ask for both, but documents are stored as they are
    tokenizer.no_padding()
    return tokenizer


def make(options: argparse.Namespace) -> int:
    """Tokenizes the documents, and prints what was written."""
    with writable(options.out, ".idx") as path:
        return _make(options, without_ending(os.path.abspath(path)))


def _make(options: argparse.Namespace, out: str) -> int:
    paths = find_files(options.sources)
    if not os.path.isdir(folder := os.path.dirname(out)):
        raise ValueError(f"--out {options.out}: there is no folder {folder}; make it first")
    recipe = _recipe_of(options, paths)
    tokenizing = Tokenizing(options.key, options.tokenizer, recipe.end, recipe.dtype, options.on_error)
    with _alone(out):
        try:
            done, errors = _write(tokenizing, paths, out, recipe, _continued(out, recipe), options.num_workers)
        except BaseException:
            if not os.path.exists(f"{out}.progress"):  # there is nothing to continue
                for name in ("bin", "idx"):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{out}.{name}.part")
            raise
        _finish(out, recipe)
    if options.json:
        shown = without_ending(options.out) if is_url(options.out) else out
        about = {"file": shown, "documents": done.documents, "tokens": done.tokens, "dtype": recipe.dtype}
        show(json.dumps({**about, "skipped": done.skipped}, indent=2))
    else:
        show(f"{options.out}: " * is_url(options.out) + repr(TokenDataset(out)))
    if done.skipped:
        show(*[f"skipped: {error}" for error in errors], f"rows that were left out: {done.skipped:,}", file=sys.stderr)
    return 1 if done.skipped else 0


@contextmanager
def _alone(out: str) -> Iterator[None]:
    """Within the block, no other run writes these files.

    Raises:
        ValueError: another run writes them now.
    """
    path = f"{out}.lock"
    while True:
        with open(path, "w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # forked workers do not inherit it
            except OSError:
                right = "wait until it has ended, or pass another --out"
                raise ValueError(f"{out}: another run writes these files now; {right}") from None
            try:
                is_ours = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            except FileNotFoundError:  # another run has ended since the file was opened
                continue
            if is_ours:
                try:
                    yield
                finally:
                    os.unlink(path)
                return


def _finish(out: str, recipe: _Recipe) -> None:
    """Gives the files their names; see NOTE [mark]. If it is killed, the next run starts from the beginning."""
    tokens, lengths = map_tokens(f"{out}.bin.part", recipe.dtype), np.fromfile(f"{out}.idx.part", np.int64)
    with replacing(f"{out}.idx") as (index,):
        write_index(index, tokens, lengths)
    with Uninterrupted():
        with suppress(FileNotFoundError):  # empty files have no pieces, and so no progress
            os.unlink(f"{out}.progress")
        os.replace(f"{out}.bin.part", f"{out}.bin")
        os.unlink(f"{out}.idx.part")


def _recipe_of(options: argparse.Namespace, paths: list[str]) -> _Recipe:
    digest, end, vocabulary = "", None, None
    if options.tokenizer is not None:
        tokenizer = load_tokenizer(options.tokenizer)
        vocabulary = tokenizer.get_vocab_size()
        with open(options.tokenizer, "rb") as file:
            digest = _digest(file.read())
        end = None if options.end is None else tokenizer.token_to_id(options.end)
    if options.end is not None and options.end.isdecimal():
        end = int(options.end)
    elif end is None and options.end is not None:
        right = "must be a token of the vocabulary of --tokenizer, or the number of a token"
        raise ValueError(f"--end {options.end}: {right}")
    dtype = options.dtype or ("uint16" if vocabulary is not None and vocabulary <= _LARGEST_UINT16 else "int32")
    if end is not None and end > np.iinfo(dtype).max:
        raise ValueError(f"--end {options.end}: the token {end} does not fit in {dtype}; pass a larger --dtype")
    files = [
        (path, status.st_size, status.st_mtime_ns) for path, status in zip(paths, map(os.stat, paths), strict=True)
    ]
    return _Recipe(_digest(json.dumps(files).encode()), digest, options.key, end, dtype)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _continued(out: str, recipe: _Recipe) -> _Progress:
    """How much another run of the same recipe has written; the files are cut to that."""
    progress = _Progress()
    with suppress(FileNotFoundError, ValueError, TypeError, LookupError), open(f"{out}.progress") as file:
        saved = json.load(file)
        if saved["recipe"] == asdict(recipe):
            progress = _Progress(**{**saved["progress"], "place": FilePlace(**saved["progress"]["place"])})
    if progress == _Progress():
        with suppress(FileNotFoundError):
            os.unlink(f"{out}.progress")  # of another recipe
    sizes = {"bin": progress.tokens * np.dtype(recipe.dtype).itemsize, "idx": progress.documents * 8}
    with open(f"{out}.bin.part", "ab") as tokens_file, open(f"{out}.idx.part", "ab") as lengths_file:
        _cut(out, {"bin": tokens_file, "idx": lengths_file}, sizes)
    return progress


def _cut(out: str, parts: Mapping[str, BinaryIO], sizes: Mapping[str, int]) -> None:
    """Cuts the files to these sizes; raises a ValueError, and changes none, if one is shorter."""
    for name, part in parts.items():
        if part.tell() < sizes[name]:
            what = f"{out}.{name}.part is shorter than {out}.progress says"
            raise ValueError(f"{what}; delete {out}.progress, and run it again: it starts from the beginning")
    for name, part in parts.items():
        part.truncate(sizes[name])


def _write(
    tokenizing: Any, paths: list[str], out: str, recipe: _Recipe, progress: _Progress, num_workers: Any
) -> tuple[_Progress, list[str]]:
    """Appends the pieces that are missing; returns what was written in all, and the first errors of rows."""
    before = np.cumsum([0, *map(os.path.getsize, paths)]).tolist()  # the bytes before each file
    missing: Any = Pieces(paths, recipe.key, progress.place)
    about = {"num_workers": num_workers, "output": "numpy", "timeout": None}
    loader = DataLoader(tokenizing, 1, sampler=missing, batchify_fn=AsList(), **about)
    errors, first, start = list[str](), progress.tokens, time.monotonic()
    with (
        open(f"{out}.bin.part", "ab") as tokens_file,
        open(f"{out}.idx.part", "ab") as lengths_file,
        loader,
        ProgressBar(before[-1], "bytes") as bar,
    ):
        for (piece,) in loader:
            for file, array in ((tokens_file, piece.tokens), (lengths_file, piece.lengths)):
                file.write(array.tobytes())
                file.flush()
            errors += piece.errors[: _SHOWN - len(errors)]
            progress = _Progress(
                piece.end,
                progress.documents + len(piece.lengths),
                progress.tokens + len(piece.tokens),
                progress.skipped + len(piece.errors),
            )
            _save(out, recipe, progress)
            speed = (progress.tokens - first) / max(1e-9, time.monotonic() - start)
            bar.reach(before[piece.end.file] + piece.end.read, f"{speed:,.0f} tokens/s")
    return progress, errors


def _save(out: str, recipe: _Recipe, progress: _Progress) -> None:
    with replacing(f"{out}.progress") as (new,), open(new, "w") as file:
        json.dump({"recipe": asdict(recipe), "progress": asdict(progress)}, file)
