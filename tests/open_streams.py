"""Iterable datasets of all kinds that note which of their streams are open, by files in a folder; workers import it."""

from __future__ import annotations

import contextlib
import os
import uuid
from itertools import islice

import numpy as np

import gluonloader as gl

SIZE = 60


class Notes:
    """A folder with an empty file for each stream that was opened, and one for each that is open."""

    def __init__(self, folder):
        self.folder, self._opened, self._open = folder, folder / "opened", folder / "open"
        self._opened.mkdir(exist_ok=True)
        self._open.mkdir(exist_ok=True)

    def begin(self):
        name = f"{os.getpid()}-{uuid.uuid4()}"
        (self._opened / name).touch()
        (self._open / name).touch()
        return name

    def end(self, name):
        (self._open / name).unlink()

    @property
    def opened(self):
        return len(list(self._opened.iterdir()))

    @property
    def open(self):
        return len(list(self._open.iterdir()))


@contextlib.contextmanager
def noted(notes):
    name = notes.begin()
    try:
        yield
    finally:
        notes.end(name)


class Finally:
    """A generator with `finally`."""

    def __init__(self, notes):
        self.notes = notes

    def samples(self):
        name = self.notes.begin()
        try:
            yield from range(SIZE)
        finally:
            self.notes.end(name)

    def __iter__(self):
        return self.samples()


class With(Finally):
    """A generator with `with`."""

    def samples(self):
        with noted(self.notes):
            yield from range(SIZE)


class Failing(Finally):
    """A generator that fails."""

    def samples(self):
        with noted(self.notes):
            yield from range(25)
            raise ValueError("sample 25")


class Samples:
    """An iterator that is no generator."""

    def __init__(self, notes):
        self.notes, self.number, self.name = notes, 0, notes.begin()

    def __iter__(self):
        return self

    def __next__(self):
        if self.number == SIZE:
            raise StopIteration
        self.number += 1
        return self.number - 1


class WithDel(Samples):
    def __del__(self):
        self.notes.end(self.name)


class WithClose(Samples):
    def close(self):
        self.notes.end(self.name)


class Deleted(Finally):
    """An iterator with `__del__`."""

    def __iter__(self):
        return WithDel(self.notes)


class Closed(Finally):
    """An iterator with `close`, to which the dataset refers, too."""

    newest = None

    def __iter__(self):
        self.newest = WithClose(self.notes)
        return self.newest


class Remembered(Finally):
    """A generator to which the dataset refers, too."""

    def __iter__(self):
        self.newest = self.samples()
        return self.newest


class Mapped(Finally):
    """A `map` over a generator."""

    def __iter__(self):
        return map(int, self.samples())


class Sliced(Finally):
    """A slice of a generator, which does not come to its end."""

    def __iter__(self):
        return islice(self.samples(), SIZE // 2)


class Sharded(Finally):
    """A method `shard` that is a generator."""

    def shard(self, num_shards, index):
        with noted(self.notes):
            yield from range(index, SIZE, num_shards)


class Zipped(Finally):
    """A method `shard` that returns a `zip` over two generators."""

    def shard(self, num_shards, index):
        return zip(self.samples(), self.samples())


def transformed(notes):
    return gl.IterableDataset(Finally(notes).samples).filter(bool).transform(float).take(SIZE // 2)


def joined(notes):
    return gl.IterableDataset(Mapped(notes)) + With(notes)


def view(notes):
    return gl.IterableDataset(Finally(notes)).shard(2, 1)


def joined_closed(notes):
    return gl.IterableDataset(Closed(notes)) + Remembered(notes)


def view_closed(notes):
    return gl.IterableDataset(Closed(notes)).shard(2, 1)


def packed(notes):
    return gl.text.PackedStream(gl.IterableDataset(Sharded(notes)).transform(document), 8, window=8)


def document(number):
    return np.arange(number % 5)


def lengths(rows):
    return [len(row.tokens) for row in rows]


KINDS = (
    Finally,
    With,
    Failing,
    Deleted,
    Closed,
    Remembered,
    Mapped,
    Sliced,
    Sharded,
    Zipped,
    transformed,
    joined,
    view,
    joined_closed,
    view_closed,
    packed,
)
