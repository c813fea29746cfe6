"""`python -m gluonloader tokens make`: tokenizes texts with the workers of a DataLoader, and continues after a stop.

    file --pieces of fixed size--> workers: texts --> tokens --in order--> OUT.bin.part, OUT.idx.part, OUT.progress

NOTE [continuing]: the pieces depend only on the file, so the result is the same for any number of workers. After each
piece, the sizes of both files are written to OUT.progress, which is replaced as a whole. A new run cuts both files to
these sizes, and continues with the next piece.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ..batchify import AsList
from ..dataset.base import Dataset
from ..errors import import_extra
from ..loader import DataLoader
from ..progress import ProgressBar
from ..text.token_files import write_index
from ..text.tokens import TokenDataset
from .printing import show

_PIECE: Final = 1 << 20  # bytes of text in a piece
_ROWS: Final = 2048  # of a table in a piece
_LARGEST_UINT16: Final = 1 << 16

_Piece = tuple[NDArray[Any], NDArray[np.int64]]  # the tokens of all documents, and the length of each document


@dataclass(frozen=True)
class _Recipe:
    """What the files are made of; a run continues another one only if these are the same.

    Attributes:
        tokenizer: a hash of the file, "" if there is none.
        size, changed: of the source file.
    """

    source: str
    size: int
    changed: int
    tokenizer: str
    key: str
    end: int | None
    dtype: str


@dataclass(frozen=True)
class _Progress:
    """How much was written; see NOTE [continuing]."""

    pieces: int = 0
    documents: int = 0
    tokens: int = 0


class TokenizedPieces(Dataset):
    """A dataset whose samples are the tokenized documents of one piece of a file."""

    def __init__(self, source: str, key: str, tokenizer: str | None, end: int | None, dtype: str) -> None:
        self._source, self._key, self._path, self._end, self._dtype = source, key, tokenizer, end, np.dtype(dtype)
        self._is_table = source.endswith(".parquet")
        self._tokenizer: Any = None  # each process loads its own

    def __len__(self) -> int:
        if self._is_table:
            return -(-int(self._table().metadata.num_rows) // _ROWS)
        return -(-os.path.getsize(self._source) // _PIECE)

    def _table(self) -> Any:
        return import_extra("pyarrow.parquet", "arrow").ParquetFile(self._source)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tokenizer": None}

    def __getitem__(self, index: Any) -> _Piece:
        documents = self._rows(index) if self._is_table else self._texts(index)
        if documents and isinstance(documents[0], str):
            documents = self._tokenized(documents)
        lengths, limits, parts = [], np.iinfo(self._dtype), [np.empty(0, self._dtype)]
        for document in documents:
            tokens = np.asarray([*document, self._end] if self._end is not None else document, np.int64)
            if len(tokens) and not limits.min <= tokens.min() <= tokens.max() <= limits.max:
                token = tokens[(tokens < limits.min) | (tokens > limits.max)][0]
                what = f"a document has the token {token}, which does not fit in {self._dtype.name}"
                raise ValueError(f"{self._source}: {what}; pass --dtype int32")
            parts.append(tokens.astype(self._dtype))
            lengths.append(len(tokens))
        return np.concatenate(parts), np.array(lengths, np.int64)

    def _tokenized(self, texts: list[str]) -> list[list[int]]:
        if self._path is None:
            raise ValueError(f"{self._source} contains texts; pass --tokenizer tokenizer.json")
        if self._tokenizer is None:
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
            self._tokenizer = load_tokenizer(self._path)
        return [encoded.ids for encoded in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _rows(self, piece: int) -> list[Any]:
        start, rows = piece * _ROWS, list[Any]()
        with self._table() as file:
            if self._key not in file.schema_arrow.names:
                names = ", ".join(map(repr, file.schema_arrow.names))
                raise ValueError(f"{self._source} has no column {self._key!r}, but {names}; pass --key")
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if start < count and len(rows) < _ROWS:
                    column = file.read_row_group(group, [self._key]).column(0)
                    rows += column.slice(max(start, 0), _ROWS - len(rows)).to_pylist()
                start -= count
        return rows

    def _texts(self, piece: int) -> list[str]:
        with open(self._source, "rb") as file:
            return [self._text_of(start, line) for start, line in _lines(file, piece) if line.strip()]

    def _text_of(self, start: int, line: bytes) -> str:
        if not self._source.endswith(".jsonl"):
            return line.decode().rstrip("\r\n")
        try:
            text = json.loads(line)[self._key]
        except (ValueError, KeyError, TypeError) as error:
            what = f"the line at byte {start} is no JSON object with a field {self._key!r}"
            raise ValueError(f"{self._source}: {what} ({type(error).__name__}: {error}); pass --key") from None
        if not isinstance(text, str):
            raise ValueError(f"{self._source}: the field {self._key!r} of the line at byte {start} is no text")
        return text


def _lines(file: BinaryIO, piece: int) -> Iterator[tuple[int, bytes]]:
    """The offset and the bytes of each line that starts in a piece of a file."""
    start = piece * _PIECE
    if piece:
        file.seek(start - 1)
        start += len(file.readline()) - 1  # the rest of a line that starts before; nothing, if one ends there
    while start < (piece + 1) * _PIECE and (line := file.readline()):
        yield start, line
        start += len(line)


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
    source, out = os.path.abspath(options.source), os.path.abspath(options.out)
    if not source.endswith((".jsonl", ".txt", ".parquet")):
        raise ValueError(f"{options.source}: the ending must be .jsonl, .txt or .parquet")
    recipe = _recipe_of(options, source)
    pieces = TokenizedPieces(source, options.key, options.tokenizer, recipe.end, recipe.dtype)
    progress = _continued(out, recipe)
    done = _write(pieces, out, recipe, progress, options.num_workers)
    _finish(out, recipe)
    if options.json:
        about = {"file": out, "documents": done.documents, "tokens": done.tokens, "dtype": recipe.dtype}
        show(json.dumps(about, indent=2))
    else:
        show(repr(TokenDataset(out)))
    return 0


def _finish(out: str, recipe: _Recipe) -> None:
    """Gives the files their names. The index comes last, so that it never belongs to other tokens."""
    with suppress(FileNotFoundError):
        os.unlink(f"{out}.idx")
    os.replace(f"{out}.bin.part", f"{out}.bin")
    lengths = np.fromfile(f"{out}.idx.part", np.int64)
    write_index(f"{out}.idx", np.dtype(recipe.dtype).newbyteorder("<"), lengths)
    for name in (f"{out}.progress", f"{out}.idx.part"):
        os.unlink(name)


def _recipe_of(options: argparse.Namespace, source: str) -> _Recipe:
    digest, end, vocabulary = "", None, None
    if options.tokenizer is not None:
        tokenizer = load_tokenizer(options.tokenizer)
        vocabulary = tokenizer.get_vocab_size()
        with open(options.tokenizer, "rb") as file:
            digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        end = None if options.end is None else tokenizer.token_to_id(options.end)
    if options.end is not None and options.end.isdecimal():
        end = int(options.end)
    elif end is None and options.end is not None:
        right = "must be a token of the vocabulary of --tokenizer, or the number of a token"
        raise ValueError(f"--end {options.end}: {right}")
    dtype = options.dtype or ("uint16" if vocabulary is not None and vocabulary <= _LARGEST_UINT16 else "int32")
    status = os.stat(source)
    return _Recipe(source, status.st_size, status.st_mtime_ns, digest, options.key, end, dtype)


def _continued(out: str, recipe: _Recipe) -> _Progress:
    """How much another run of the same recipe has written; the files are cut to that."""
    progress = _Progress()
    with suppress(FileNotFoundError, ValueError, TypeError), open(f"{out}.progress") as file:
        saved = json.load(file)
        if saved["recipe"] == asdict(recipe):
            progress = _Progress(**saved["progress"])
            if not os.path.exists(f"{out}.bin.part"):  # the other run was interrupted in `_finish`
                os.replace(f"{out}.bin", f"{out}.bin.part")
    for name, size in (("bin", progress.tokens * np.dtype(recipe.dtype).itemsize), ("idx", progress.documents * 8)):
        with open(f"{out}.{name}.part", "ab") as part:
            if part.tell() < size:
                raise ValueError(
                    f"{out}.{name}.part is shorter than {out}.progress says; delete both, and run it again"
                )
            part.truncate(size)
    return progress


def _write(pieces: TokenizedPieces, out: str, recipe: _Recipe, progress: _Progress, num_workers: Any) -> _Progress:
    """Appends the pieces that are missing; returns what was written in all."""
    missing: Iterable[int] = range(progress.pieces, len(pieces))
    if not missing:
        return progress
    loader = DataLoader(pieces, 1, sampler=missing, batchify_fn=AsList(), num_workers=num_workers, output="numpy")
    with (
        open(f"{out}.bin.part", "ab") as tokens_file,
        open(f"{out}.idx.part", "ab") as lengths_file,
        loader,
        ProgressBar(len(pieces), "pieces") as bar,
    ):
        bar.reach(progress.pieces)
        for ((tokens, lengths),) in loader:
            for file, array in ((tokens_file, tokens), (lengths_file, lengths)):
                file.write(array.tobytes())
                file.flush()
            progress = _Progress(progress.pieces + 1, progress.documents + len(lengths), progress.tokens + len(tokens))
            _save(out, recipe, progress)
            bar.advance(1)
    return progress


def _save(out: str, recipe: _Recipe, progress: _Progress) -> None:
    with open(f"{out}.progress.new", "w") as file:
        json.dump({"recipe": asdict(recipe), "progress": asdict(progress)}, file)
    os.replace(f"{out}.progress.new", f"{out}.progress")
