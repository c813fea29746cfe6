"""Datasets of image files: in a folder per class, or listed with their labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset import PackedList
from ..errors import bad_argument
from .encoded import ImageDataset, ImageFiles, Items, Path
from .lists import SUFFIXES, is_image, read_list


class ImageFolderDataset(ImageDataset):
    """The images in `root/CLASS/NAME.jpg`; a sample is (image, label), as in Gluon.

    The label is the number of the class, from 0, in the order of the sorted names of the folders. The images of a class
    are sorted by name, too. Files of other types than .jpg, .jpeg and .png are ignored with a warning.

    Args:
        root: the folder that contains a folder for each class.
        flag: 1 for images of shape (H, W, 3), RGB; 0 for gray images of shape (H, W, 1). Images are uint8.
        transform: called as `transform(image, label)`; what it returns is the sample.
        options: `min_size`, `orient` and `max_pixels`, see `decode`.

    Attributes:
        synsets: Gluon's name of `classes`.

    Raises:
        OSError: a folder cannot be read.
        ValueError: there are no images.
        ImageError: raised by a read if an image cannot be decoded; the text names the file.
    """

    def __init__(self, root: Path, flag: int = 1, transform: Callable[..., Any] | None = None, **options: Any) -> None:
        root = os.path.expanduser(os.fspath(root))
        self.synsets: list[str] = []
        paths: list[str] = []
        ends: list[int] = []
        ignored: list[str] = []
        for folder in _sorted_entries(root):
            if not folder.is_dir():
                ignored.append(folder.path)
                continue
            self.synsets.append(folder.name)
            for file in _sorted_entries(folder.path):
                (paths if is_image(file.name) and not file.is_dir() else ignored).append(file.path)
            ends.append(len(paths))
        if not paths:
            expected = f"as in {os.path.join(root, 'CLASS', 'NAME.jpg')}"
            raise ValueError(f"root={root!r}: contains no images; put {', '.join(SUFFIXES)} files there, {expected}")
        if ignored:
            what = f"{ignored[0]} and {len(ignored) - 1} more" if len(ignored) > 1 else ignored[0]
            expected = f"{', '.join(SUFFIXES)} files, each in the folder of its class"
            warnings.warn(f"ignored {what} in {root}: ImageFolderDataset reads {expected}", stacklevel=2)
        labels = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))
        super().__init__(ImageFiles(paths, labels), flag, transform, **options)

    @property
    def classes(self) -> list[str]:
        """The names of the classes; the label of a sample is an index of this list."""
        return self.synsets

    @property
    def items(self) -> Sequence[tuple[str, int]]:
        """The path and the label of each image."""
        return Items(self.encoded)


class ImageListDataset(ImageDataset):
    """Images of a list of paths and labels; a sample is (image, label).

    Args:
        root: the folder that contains the images; the paths in `imglist` are relative to it.
        imglist: a list of pairs (path, label), or of lists that end with the path, as in Gluon: `[label, path]`,
            `[label, label, path]`. Or the path of a `.lst` file (in `root`, or else in the current folder), whose lines
            contain a number, the labels and the path, separated by tabs. A label is a number, or a sequence of numbers.
        flag: 1 for images of shape (H, W, 3), RGB; 0 for gray images of shape (H, W, 1). Images are uint8.
        transform: called as `transform(image, label)`; what it returns is the sample.
        options: `min_size`, `orient` and `max_pixels`, see `decode`.

    A single label becomes an int or a float, as it is in the list; in a `.lst` file it is a float. Several labels
    become a float32 array of shape (labels,).

    Raises:
        OSError: the `.lst` file cannot be read.
        ValueError: the list is empty, an entry has no label or no path, or a path leaves `root`; the text names the
            entry or the line.
        ImageError: raised by a read if an image cannot be decoded; the text names the file.
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
            raise bad_argument("imglist", imglist, "pass a list of (path, label), or the path of a .lst file")
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
    for place, _, labels, path in read_list(in_root if os.path.exists(in_root) else os.fspath(imglist)):
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
    """The path of an image in `root`, checked."""
    full = os.path.join(root, path)
    top = os.path.abspath(root)
    if os.path.commonpath([top, os.path.abspath(full)]) != top:
        raise ValueError(f"{where}: the path {os.fspath(path)!r} leaves root={root!r}; pass a root that contains it")
    return full


def _label(label: Any, where: str) -> Any:
    if isinstance(label, Real):
        return int(label) if isinstance(label, (int, np.integer)) else float(label)
    try:
        values: NDArray[np.float32] = np.asarray(label, np.float32)
    except (TypeError, ValueError):
        values = np.empty(0, np.float32)
    if label is None or isinstance(label, str) or not values.size:
        raise ValueError(f"{where}: the label is {label!r:.80}; pass a number, or a sequence of numbers")
    return values.item() if values.ndim == 0 else values


def _as_column(labels: list[Any]) -> Any:
    kinds = set(map(type, labels))
    return np.array(labels) if kinds in ({int}, {float}) else PackedList(labels)
