"""`python -m gluonloader records make`: packs images into a `.rec` file, with the workers of a DataLoader."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

from ..batchify import AsList
from ..dataset import Dataset, PackedList, Subset
from ..errors import import_extra
from ..loader import DataLoader
from ..records import IndexedRecordIO, IRHeader, pack, pack_img
from ..records.index import index_path
from .progress import Progress

_SUFFIXES: Final = (".jpeg", ".jpg", ".png")  # MXNet's im2rec packs files with these endings
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
            with open(path, "rb") as file:
                data = file.read()
            if not data:
                raise ValueError("the file is empty")
            small = None if self._resize is None else _shrunk(data, self._resize)
            return key, pack(header, data) if small is None else pack_img(header, small, self._quality), ""
        except (OSError, ValueError) as error:
            return key, b"", f"{path}: {error}"


def make(options: argparse.Namespace) -> int:
    """Packs the images. Writes the files under temporary names first, so that an interrupted run leaves no files."""
    images = list(_listed(options.source, options.root) if os.path.isfile(options.source) else _in(options.source))
    if not images:
        raise ValueError(f"{options.source}: it contains no image files ({', '.join(_SUFFIXES)})")
    if not 1 <= options.quality <= 100:
        raise ValueError(f"--quality {options.quality}: must be from 1 to 100")
    if options.resize is not None:
        import_extra("cv2", "vision", "OpenCV")  # otherwise each image would raise the error that OpenCV is missing
    count, order = len(images), range(len(images))
    rows = np.random.default_rng(options.seed).permutation(count) if options.shuffle else order
    dataset = PackedImages(Subset(PackedList(images), rows), options.resize, options.quality)
    final = os.path.abspath(options.out), index_path(options.out)
    unfinished = [f"{path}.part" for path in final]
    try:
        errors = _write(dataset, unfinished, options.num_workers)
        for path, name in zip(unfinished, final, strict=True):
            os.replace(path, name)
    finally:
        for path in unfinished:
            with suppress(FileNotFoundError):
                os.unlink(path)
    print(f"{final[0]}: {count - len(errors):,} of {count:,} images")
    for error in errors:
        print(f"skipped: {error}", file=sys.stderr)
    return 1 if errors else 0


def _write(dataset: PackedImages, paths: list[str], num_workers: Any) -> list[str]:
    """Writes the records and the index. Returns the errors of the images that were skipped."""
    errors = []
    loader = DataLoader(dataset, _BATCH, batchify_fn=AsList(), num_workers=num_workers, output="numpy")
    with loader, IndexedRecordIO(paths[0], "w", index=paths[1]) as file, Progress(len(dataset), "images") as progress:
        for batch in loader:
            for key, record, error in batch:
                if error:
                    errors.append(error)
                else:
                    file.write_idx(key, record)
            progress.advance(len(batch))
    return errors


def _in(root: str) -> Iterator[_Image]:
    """Yields the images in a folder and all folders in it; each folder that contains images gets the next label."""
    if not os.path.isdir(root):
        raise FileNotFoundError(f"{root}: there is no such folder or .lst file")
    key = label = 0
    seen = set()  # a symbolic link may point to a folder above it
    for folder, folders, files in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        images = [name for name in sorted(files) if name.lower().endswith(_SUFFIXES)]
        for name in images:
            yield key, float(label), os.path.join(folder, name)
            key += 1
        if images:
            print(f"label {label}: {os.path.relpath(folder, root)} (images: {len(images):,})")
            label += 1


def _listed(path: str, root: str | None) -> Iterator[_Image]:
    """Yields the images of a .lst file. A line contains INDEX, one or more labels, and PATH, separated by tabs."""
    folder = os.path.dirname(os.path.abspath(path)) if root is None else root
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            fields = [field.strip() for field in line.strip().split("\t")]
            try:
                key, labels = int(fields[0]), [float(label) for label in fields[1:-1]]
            except ValueError:
                labels = []
            if not labels:
                what = f"{path}, line {number}: must be INDEX<tab>LABEL<tab>PATH, with at least one label"
                raise ValueError(f"{what}, but the line is {line[:80]!r}")
            yield key, labels if len(labels) > 1 else labels[0], os.path.join(folder, fields[-1])


def _shrunk(data: bytes, size: int) -> Any:
    """Returns the image, resized so that its shorter side has `size` pixels; None if it is not larger than that.

    The channels are blue, green and red.
    """
    cv2 = import_extra("cv2", "vision", "OpenCV")
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_ANYCOLOR)
    if image is None:
        raise ValueError("OpenCV cannot decode this image")
    height, width = image.shape[:2]
    scale = size / min(height, width)
    if scale >= 1:
        return None
    shape = max(size, round(width * scale)), max(size, round(height * scale))
    return cv2.resize(image, shape, interpolation=cv2.INTER_AREA)
