"""`python -m gluonloader records check`: finds the damaged records of a file, in the processes of a DataLoader."""

from __future__ import annotations

import argparse
import importlib
import io
import os
from typing import Any, Final

import numpy as np

from ..batchify import AsList
from ..dataset import Dataset
from ..errors import RecordError, import_extra
from ..loader import DataLoader
from ..records import unpack
from ..records.frames import check_no_frame_in, data_of, mapped, next_start, spans_of
from ..records.index import index_path, read_index
from .progress import Progress

_BATCH: Final = 32  # records per task of a worker
_JPEG: Final = b"\xff\xd8"


class DecodedRecords(Dataset):
    """The error of each record's image, or "" if it can be decoded."""

    def __init__(self, path: str, starts: list[int]) -> None:
        self._path, self._starts = path, np.array(starts, np.int64)
        self._file: Any = None  # opened in each process

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> str:
        if self._file is None:
            self._file = mapped(self._path)
        start = self._starts.item(index)
        try:
            _decode(unpack(data_of(self._file, spans_of(self._file, start, len(self._file), self._path)[0]))[1])
        except Exception as error:  # decoders raise many types
            return str(error) or type(error).__name__
        return ""


def check(options: argparse.Namespace) -> int:
    """Prints a line for each error, in the order of the file."""
    path = os.path.abspath(options.file)
    starts, errors = _whole_records(path)
    index = index_path(path)
    keys: dict[int, Any] = {}
    if os.path.exists(index):
        keys, wrong = _checked_index(path, index, starts)
        damaged = {error.offset for error in errors}
        errors += [error for error in wrong if error.file == index or error.offset not in damaged]
    if not options.no_decode:
        _decode_check()
        dataset = DecodedRecords(path, starts)
        loader = DataLoader(dataset, _BATCH, batchify_fn=AsList(), num_workers=options.num_workers, output="numpy")
        with loader, Progress(len(starts), "records") as progress:
            at = 0
            for batch in loader:
                for start, text in zip(starts[at : at + len(batch)], batch, strict=True):
                    if text:
                        errors.append(RecordError(text, path, start))
                at += len(batch)
                progress.advance(len(batch))
    for error in sorted(errors, key=lambda error: (error.file != path, error.offset or 0)):
        key = f" (key {keys[error.offset]})" if error.file == path and error.offset in keys else ""
        print(f"{error.file}, byte {error.offset or 0}{key}: {error.reason}")
    print(f"{path}: {len(starts):,} whole records, {len(errors):,} errors")
    return 1 if errors else 0


def _whole_records(path: str) -> tuple[list[int], list[RecordError]]:
    """Where each whole record starts, and the errors of the others; after an error it goes on at the next record."""
    file, starts, errors = mapped(path), list[int](), list[RecordError]()
    at = 0
    while at < len(file):
        try:
            spans, end = spans_of(file, at, len(file), path)
            check_no_frame_in(file, spans, path)
            starts.append(at)
        except RecordError as error:
            errors.append(error)
            end = next_start(file, at + 4)
        at = end
    return starts, errors


def _checked_index(path: str, index: str, starts: list[int]) -> tuple[dict[int, Any], list[RecordError]]:
    """The key at each offset, and the lines that point to no record and the records to which no line points."""
    try:
        listed, offsets = read_index(index, str)
    except RecordError as error:
        return {}, [error]
    keys = dict(zip(offsets, listed, strict=True))
    missing = sorted(set(starts) - keys.keys())
    errors = [RecordError(f"{index} does not list this record", path, start) for start in missing]
    for at in sorted(keys.keys() - set(starts)):
        what = f"key {keys[at]} of {index} points here, but no whole record starts here"
        errors.append(RecordError(what, path, at))
    return keys, errors


def _decode_check() -> None:
    """Raises MissingExtraError if no decoder is installed."""
    if not any(map(_found, ("PIL", "cv2"))):
        import_extra("cv2", "vision")


def _found(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _decode(data: bytes) -> None:
    """Raises an error if the image is damaged. Pillow is asked first: OpenCV returns images that were cut off."""
    if data[:2] == _JPEG and (simplejpeg := _found("simplejpeg")):
        simplejpeg.decode_jpeg(data)
    elif pillow := _found("PIL.Image"):
        with pillow.open(io.BytesIO(data)) as image:
            image.load()
    elif not len(data) or _found("cv2").imdecode(np.frombuffer(data, np.uint8), -1) is None:
        raise ValueError("OpenCV cannot decode this image")
