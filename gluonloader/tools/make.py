"""`python -m gluonloader records make`: packs images into a `.rec` file, with the workers of a DataLoader."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..batchify import AsList
from ..dataset.base import Dataset, Subset
from ..dataset.compact import CompactList
from ..decoders import opencv
from ..loader import DataLoader
from ..progress import ProgressBar
from ..records import IndexedRecordIO, IRHeader, pack
from ..records.frames import MAX_LENGTH
from ..records.headers import encoded
from ..records.index import index_path
from ..replacing import replacing
from ..stores.objects import is_url
from ..stores.writing import writable
from ..vision.exif import orientation_of, with_orientation
from ..vision.header import read_header
from ..vision.lists import SUFFIXES, is_folder, is_image, read_file, read_list
from .printing import show

_BATCH: Final = 8  # images that a worker packs in one task

_Image = tuple[int, Any, str]  # key; label, or list of labels; path


class PackedImages(Dataset):
    """A dataset that packs images. A sample is (key, record, ""), or, after an error, (key, b"", text of the error)."""

    def __init__(self, images: Dataset, resize: int | None, quality: int) -> None:
        self._images, self._resize, self._quality = images, resize, quality

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: Any) -> tuple[int, bytes, str]:
        key, label, path = self._images[index]
        header = IRHeader(0, label, key, 0)
        try:
            data = read_file(path, MAX_LENGTH)
            if not data:
                raise ValueError("the file is empty")
            small = None if self._resize is None else _shrunk(data, self._resize)
            if small is not None:
                data = with_orientation(encoded(small, self._quality), _orientation_of(data))
            record = pack(header, data)
            if len(record) > MAX_LENGTH:
                raise ValueError(f"its record has {len(record):,} bytes, more than {MAX_LENGTH:,}")
            return key, record, ""
        except MemoryError:
            return key, b"", f"{path}: there is not enough memory to read this file"
        except (OSError, ValueError) as error:
            return key, b"", f"{path}: {error}"


def make(options: argparse.Namespace) -> int:
    """Packs the images. An interrupted run leaves no files."""
    with writable(options.out, ".idx") as out:
        return _make(options, out)


def _make(options: argparse.Namespace, out: str) -> int:
    final = _checked_outputs(out)
    shown = options.out if is_url(options.out) else final[0]
    if not 1 <= options.quality <= 100:
        raise ValueError(f"--quality {options.quality}: must be from 1 to 100")
    if options.resize is not None:
        opencv()  # otherwise each image would raise the error that OpenCV is missing
    images, labels = _images_of(options.source, options.root)
    if not images:
        raise ValueError(f"{options.source}: it contains no image files ({', '.join(SUFFIXES)})")
    count, order = len(images), range(len(images))
    rows = np.random.default_rng(options.seed).permutation(count) if options.shuffle else order
    dataset = PackedImages(Subset(CompactList(images), rows), options.resize, options.quality)
    with replacing(*final) as new:
        errors = _write(dataset, new, options.num_workers, options.on_error)
    if options.json:
        result = {"file": shown, "images": count, "packed": count - len(errors), "labels": labels, "skipped": errors}
        show(json.dumps(result, indent=2))
        return 1 if errors else 0
    for number, (folder, size) in enumerate(labels.items()):
        show(f"label {number}: {folder} (images: {size:,})")
    show(f"{shown}: {count - len(errors):,} of {count:,} images")
    show(*[f"skipped: {error}" for error in errors], file=sys.stderr)
    return 1 if errors else 0


def _checked_outputs(out: str) -> tuple[str, str]:
    """Returns the paths of the record file and of its index. Raises OSError if they cannot be written."""
    paths = os.path.abspath(out), index_path(os.path.abspath(out))
    if not os.path.isdir(os.path.dirname(paths[0])):
        raise FileNotFoundError(f"{paths[0]}: its folder does not exist; create the folder first")
    if out.endswith(".lst"):
        raise ValueError(f"{out}: a list is what is read; pass the path of the .rec file to write before it")
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path}: it is a folder; pass the path of the .rec file to write")
    return paths


def _write(dataset: PackedImages, paths: list[str], num_workers: Any, on_error: str) -> list[str]:
    """Writes the records and the index. Returns the errors of the images that were skipped.

    Raises:
        ValueError: an image cannot be packed, and `on_error` is "raise".
    """
    errors = []
    loader = DataLoader(dataset, _BATCH, batchify_fn=AsList(), num_workers=num_workers, output="numpy")
    bar = ProgressBar(len(dataset), "images")
    with loader, IndexedRecordIO(paths[0], "w", index=paths[1]) as file, bar as progress:
        for batch in loader:
            for key, record, error in batch:
                if error and on_error == "raise":
                    raise ValueError(f"{error}; no file was written: remove the image, or pass --on-error skip")
                if error:
                    errors.append(error)
                else:
                    file.write_idx(key, record)
            progress.advance(len(batch))
    return errors


def _images_of(source: str, root: str | None) -> tuple[list[_Image], dict[str, int]]:
    """Returns the images of a list or a folder, and the number of images of each label of a folder, in order."""
    if os.path.isfile(source):
        if root is not None and not os.path.isdir(root):
            raise FileNotFoundError(f"--root {root}: there is no such folder")
        return list(_listed(source, root)), {}
    if not os.path.isdir(source):
        raise FileNotFoundError(f"{source}: there is no such folder or .lst file")
    if root is not None:
        raise ValueError(f"--root {root}: is for the paths of a list, but {source} is a folder; remove --root")
    images, labels = list[_Image](), dict[str, int]()
    for folder, names in _folders(source):
        if names:
            label = float(len(labels))
            labels[os.path.relpath(folder, source)] = len(names)
            images += [(len(images) + row, label, os.path.join(folder, name)) for row, name in enumerate(names)]
    return images, labels


def _folders(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the path and the sorted images of a folder and of all folders in it.

    If a folder cannot be read, it raises an OSError. It skips a link that points to a folder above the link.
    """
    # Folders that are not read yet, the next one last, and for each the devices and inodes of the folders above.
    # A recursive function would fail for folders that are nested deeply.
    unread: list[tuple[str, tuple[tuple[int, int], ...]]] = [(root, ())]
    while unread:
        folder, above = unread.pop()
        status = os.stat(folder)
        mark = (status.st_dev, status.st_ino)
        if mark in above:
            continue
        with os.scandir(folder) as entries:
            inside = {entry.name: is_folder(entry) for entry in sorted(entries, key=lambda entry: entry.name)}
        yield folder, [name for name, is_inner in inside.items() if not is_inner and is_image(name)]
        inner = [name for name, is_inner in inside.items() if is_inner]
        unread += [(os.path.join(folder, name), (*above, mark)) for name in reversed(inner)]


def _listed(path: str, root: str | None) -> Iterator[_Image]:
    """Yields the images of a .lst file."""
    folder = os.path.dirname(os.path.abspath(path)) if root is None else root
    for _, key, labels, name in read_list(path):
        yield key, labels if len(labels) > 1 else labels[0], os.path.join(folder, name)


def _orientation_of(data: bytes) -> int:
    """The EXIF orientation of a JPEG or PNG file; 1 for any other file."""
    exif = read_header(data, None).exif
    return 1 if exif is None else orientation_of(data[slice(*exif)])


def _shrunk(data: bytes, size: int) -> Any:
    """Returns the image, resized so that its shorter side has `size` pixels; None if it is not larger than that.

    The channels are blue, green and red. The image is not rotated by its EXIF orientation, which the new file gets,
    because images that are packed unchanged are not rotated either.
    """
    cv2 = opencv()
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_ANYCOLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:  # for example, the image has too many pixels
        raise ValueError(f"OpenCV cannot decode this image: {error.err}") from None
    if image is None:
        raise ValueError("OpenCV cannot decode this image")
    height, width = image.shape[:2]
    scale = size / min(height, width)
    if scale >= 1:
        return None
    shape = max(size, round(width * scale)), max(size, round(height * scale))
    return cv2.resize(image, shape, interpolation=cv2.INTER_AREA)
