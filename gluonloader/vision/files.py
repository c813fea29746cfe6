"""Datasets of image files: `ImageFolderDataset` for a folder per class, `ImageListDataset` for a list with labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from ..dataset.compact import CompactList
from ..errors import bad_argument, warn
from ..records.headers import as_float32
from .encoded import ImageDataset, ImageFiles, Items, Path
from .lists import SUFFIXES, is_folder, is_image, read_list


class ImageFolderDataset(ImageDataset):
    """The images in `root/CLASS/NAME.jpg`; a sample is (image, label), as in Gluon.

    The label is the number of the class, from 0; the classes are sorted by the names of their folders. Within a class,
    the images are sorted by file name. Files of other types than .jpg, .jpeg and .png are ignored, with a warning.

    Args:
        root: the folder that contains a folder for each class.
        flag: 1 for RGB images of shape (H, W, 3), 0 for gray images of shape (H, W, 1). The dtype is uint8.
        transform: function that is called as `transform(image, label)`; its result is the sample.
        options: the arguments `min_size`, `orient` and `max_pixels` of `decode`.

    Attributes:
        synsets: the same list as `classes`, under Gluon's name.

    Raises:
        OSError: a folder cannot be read.
        ValueError: the folders contain no images.
        ImageError: raised when a sample is read, if its image cannot be decoded; the text names the file.
    """

    def __init__(self, root: Path, flag: int = 1, transform: Callable[..., Any] | None = None, **options: Any) -> None:
        root = os.path.expanduser(os.fspath(root))
        self.synsets: list[str] = []
        paths: list[str] = []
        ends: list[int] = []
        ignored: list[str] = []
        for folder in _sorted_entries(root):
            if not is_folder(folder):
                ignored.append(folder.path)
                continue
            self.synsets.append(folder.name)
            for file in _sorted_entries(folder.path):
                (paths if is_image(file.name) and not is_folder(file) else ignored).append(file.path)
            ends.append(len(paths))
        if not paths:
            expected = f"as in {os.path.join(root, 'CLASS', 'NAME.jpg')}"
            raise ValueError(f"root={root!r}: contains no images; put {', '.join(SUFFIXES)} files there, {expected}")
        if ignored:
            what = f"{ignored[0]} and {len(ignored) - 1} more" if len(ignored) > 1 else ignored[0]
            expected = f"{', '.join(SUFFIXES)} files, in a folder for each class"
            warn(f"ImageFolderDataset ignored {what} in {root}: it reads only {expected}")
        labels = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))
        super().__init__(ImageFiles(paths, labels), flag, transform, **options)

    @property
    def classes(self) -> list[str]:
        """The names of the classes. The label of a sample is an index into this list."""
        return self.synsets

    @property
    def items(self) -> Sequence[tuple[str, int]]:
        """The path and the label of each image."""
        return Items(self.encoded)


class ImageListDataset(ImageDataset):
    """Image files from a list of paths and labels; a sample is (image, label).

    Args:
        root: the folder that contains the images; the paths in `imglist` are relative to it.
        imglist: a list of pairs (path, label); a label is a number or a sequence of numbers. Or, as in Gluon, a list of
            lists that end with the path: `[label, path]` or `[label, label, path]`. Or the path of a `.lst` file,
            relative to `root` or to the current folder; each line of the file contains a number, the labels and the
            path, separated by tabs.
        flag: 1 for RGB images of shape (H, W, 3), 0 for gray images of shape (H, W, 1). The dtype is uint8.
        transform: function that is called as `transform(image, label)`; its result is the sample.
        options: the arguments `min_size`, `orient` and `max_pixels` of `decode`.

    If an image has a single label, the label is an int or a float as in the list, or a float if it is from a `.lst`
    file. If an image has several labels, they are a float32 array of shape (number of labels,).

    Raises:
        OSError: the `.lst` file cannot be read.
        ValueError: the list is empty, an entry has no label or no path, or a path leads out of `root`; the text names
            the entry or the line.
        ImageError: raised when a sample is read, if its image cannot be decoded; the text names the file.
    """

    def __init__(
        self,
        root: Path = ".",
        imglist: Path | Iterable[Any] | None = None,
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        root = os.path.expanduser(os.fspath(root))
        if imglist is None:
            raise bad_argument("imglist", imglist, "must be a list of (path, label), or the path of a .lst file")
        entries = _read_lst(root, imglist) if isinstance(imglist, (str, os.PathLike)) else _read_list(imglist)
        paths, labels = [], []
        for where, path, label in entries:
            paths.append(_inside(root, path, where))
            labels.append(_label(label, where))
        if not paths:
            raise ValueError(f"imglist={imglist!r:.80}: contains no images; pass at least one (path, label)")
        super().__init__(ImageFiles(paths, _as_column(labels)), flag, transform, **options)

    @property
    def items(self) -> Sequence[tuple[str, Any]]:
        """The path and the label of each image."""
        return Items(self.encoded)


def _sorted_entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _read_lst(root: str, imglist: Path) -> Iterator[tuple[str, str, Any]]:
    in_root = os.path.join(root, imglist)
    for place, _, labels, path in read_list(in_root if os.path.exists(in_root) else os.path.expanduser(imglist)):
        yield place, path, labels[0] if len(labels) == 1 else labels


def _read_list(entries: Iterable[Any]) -> Iterator[tuple[str, Any, Any]]:
    for number, entry in enumerate(entries):
        where = f"imglist[{number}]={entry!r:.80}"
        fields = list(entry) if isinstance(entry, (tuple, list)) else []
        if len(fields) == 2 and isinstance(fields[0], (str, os.PathLike)):
            yield where, fields[0], fields[1]
        elif len(fields) >= 2 and isinstance(fields[-1], (str, os.PathLike)):
            yield where, fields[-1], fields[0] if len(fields) == 2 else fields[:-1]
        else:
            raise ValueError(f"{where}: pass (path, label), or [label, path] with one or more labels")


def _inside(root: str, path: Path, where: str) -> str:
    """Returns the path of an image in `root`. Raises ValueError if the path leads out of `root`."""
    full = os.path.join(root, path)
    top = os.path.abspath(root)
    if os.path.commonpath([top, os.path.abspath(full)]) != top:
        what = f"the path {os.fspath(path)!r} leads out of root={root!r}"
        raise ValueError(f"{where}: {what}; pass a root that contains the file")
    return full


def _label(label: Any, where: str) -> Any:
    if getattr(label, "ndim", None) == 0:  # an array without axes, or a NumPy number
        label = label.item()
    if isinstance(label, Real):
        return int(label) if isinstance(label, int) else float(label)
    values = as_float32(label)
    if values is None or not values.size:
        raise ValueError(f"{where}: the label is {label!r:.80}; pass a number, or a sequence of numbers")
    return values


def _as_column(labels: list[Any]) -> Any:
    kinds = set(map(type, labels))
    column = np.array(labels) if kinds in ({int}, {float}) else None
    has_room = column is not None and column.dtype.kind == ("f" if float in kinds else "i")  # for large ints
    return column if has_room else CompactList(labels)
