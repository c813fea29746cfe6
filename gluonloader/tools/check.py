"""`python -m gluonloader records check`: finds the damaged records of a file, with the workers of a DataLoader."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, Final

import numpy as np

from ..batchify import AsList
from ..dataset.base import Dataset
from ..decoders import installed, opencv
from ..errors import RecordError
from ..loader import DataLoader
from ..progress import ProgressBar
from ..records import unpack
from ..records.frames import check_no_frame_in, data_of, mapped, next_start, spans_of
from ..records.index import index_path, read_index
from ..vision.decoding import check_intact
from .printing import show

_BATCH: Final = 32  # records that a worker decodes in one task

_Errors = dict[int, RecordError]  # the key is the offset of the record, or -1 for an error of the index


class DecodedRecords(Dataset):
    """A dataset that decodes the image of each record. A sample is the text of the error, "" if there is no error."""

    def __init__(self, path: str, starts: Any) -> None:
        self._path, self._starts = path, np.array(starts, np.int64)
        self._file = mapped(path)

    def __reduce__(self) -> Any:
        return type(self), (self._path, self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> str:
        start = self._starts.item(index)
        try:
            record = data_of(self._file, spans_of(self._file, start, len(self._file), self._path)[0])
            check_intact(unpack(record)[1])
        except Exception as error:  # decoders raise exceptions of many types
            return str(error) or type(error).__name__
        return ""


def check(options: argparse.Namespace) -> int:
    """Prints a line for each error, in the order of the file."""
    path = os.path.abspath(options.file)
    starts, errors = _intact_records(path)
    index = index_path(path)
    keys: dict[int, Any] = {}
    if os.path.exists(index):
        keys, wrong = _checked_index(path, index, starts)
        errors |= {start: error for start, error in wrong.items() if start not in errors}
    if not options.no_decode:
        errors |= _undecodable(path, starts, options.num_workers)
    found = [
        {"file": error.file, "byte": error.offset or 0, "key": keys.get(start), "reason": error.reason}
        for start, error in sorted(errors.items())
    ]
    if options.json:
        show(json.dumps({"file": path, "records": len(starts), "errors": found}, indent=2))
    else:
        _print(path, len(starts), found)
    return 1 if errors else 0


def _print(path: str, count: int, errors: list[dict[str, Any]]) -> None:
    for error in errors:
        key = "" if error["key"] is None else f" (key {error['key']})"
        show(f"{error['file']}, byte {error['byte']}{key}: {error['reason']}")
    show(f"{path}: {count:,} records with intact frames; errors: {len(errors):,}")


def _intact_records(path: str) -> tuple[list[int], _Errors]:
    """Returns the offsets of the records with intact frames, and the errors of the other records.

    After an error, it continues at the next offset where a record may start.
    """
    file, starts, errors = mapped(path), list[int](), _Errors()
    at = 0
    while at < len(file):
        try:
            spans, end = spans_of(file, at, len(file), path)
            check_no_frame_in(file, spans, path)
            starts.append(at)
        except RecordError as error:
            errors[at] = error
            end = next_start(file, at + 4)
        at = end
    return starts, errors


def _checked_index(path: str, index: str, starts: list[int]) -> tuple[dict[int, Any], _Errors]:
    """Compares the index with the records; returns the key at each offset of the index, and the errors.

    An error is a line that points to no record, a record to which no line points, or a line that points to the same
    record as a line above it.
    """
    try:
        listed, offsets = read_index(index, str)
    except RecordError as error:
        return {}, {-1: error}
    keys, errors = dict[int, Any](), _Errors()
    for key, at in zip(listed, offsets, strict=True):
        if at in keys:
            errors[at] = RecordError(f"the keys {keys[at]} and {key} of {index} both point here", path, at)
        keys.setdefault(at, key)
    for at in set(starts) - keys.keys():
        errors[at] = RecordError(f"{index} does not list this record", path, at)
    for at in keys.keys() - set(starts):
        what = f"key {keys[at]} of {index} points here, but no record with intact frames starts here"
        errors[at] = RecordError(what, path, at)
    return keys, errors


def _undecodable(path: str, starts: list[int], num_workers: Any) -> _Errors:
    """Decodes the images of all records, and returns the errors."""
    if not any(map(installed, ("PIL.Image", "cv2"))):
        opencv()  # raises an error whose text says what to install
    loader = DataLoader(
        DecodedRecords(path, starts), _BATCH, batchify_fn=AsList(), num_workers=num_workers, output="numpy"
    )
    errors, left = _Errors(), iter(starts)
    with loader, ProgressBar(len(starts), "records") as progress:
        for batch in loader:
            errors |= {at: RecordError(text, path, at) for text, at in zip(batch, left, strict=False) if text}
            progress.advance(len(batch))
    return errors
