"""Datasets that cannot be pickled: the error names the attribute, and what to do with it."""

import functools
import re
import threading

import pytest

from gluonloader import SimpleDataset
from gluonloader.errors import TransportError
from gluonloader.executors.process.mapped_job import pickle_for
from gluonloader.work.task import Job

LOCKED = "cannot pickle '_thread.lock' object"


class Part:
    """Refers to itself, so that there are endless paths to each attribute."""

    def __init__(self, **attributes):
        self.me = self
        vars(self).update(attributes)

    def __call__(self, sample):
        return sample


class Slotted:
    __slots__ = ("file",)


class Values(list):
    pass


class Reduced:
    """What is pickled are the arguments of a function."""

    def __init__(self, lock):
        self.lock = lock

    def __reduce__(self):
        return Reduced, (self.lock,)


class WithoutLock(Part):
    def __getstate__(self):
        return {**vars(self), "lock": None}


def lock():
    return threading.Lock()


def error_of(dataset, batchify_fn=list):
    job = Job(dataset, batchify_fn, None, 2, 0)
    with pytest.raises(TransportError) as caught:
        pickle_for("spawn", job)
    return str(caught.value).removeprefix("start_method='spawn' needs to pickle ")


@pytest.mark.parametrize(("make", "path"), [
    (lambda: Part(lock=lock()), "dataset.lock"),
    (lambda: Part(transform=Part(lock=lock())), "dataset.transform.lock"),
    (lambda: Part(steps=[Part(), Part(locks={"a b": (1, lock())})]), "dataset.steps[1].locks['a b'][1]"),
    (lambda: Part(values=Values([1, Part(lock=lock())])), "dataset.values.lock"),
    (lambda: Part(transform=functools.partial(max, Part(lock=lock()))), "dataset.transform[0].lock"),
    (lambda: Part(transform=Part(lock=lock()).__call__), "dataset.transform.lock"),
    (lambda: Part(reduced=Reduced(lock())), "dataset.reduced"),
    (lambda: SimpleDataset([1]).transform(Part(lock=lock())), "dataset._fn.lock"),
], ids=range(8))  # fmt: skip
def test_the_attribute_with_a_lock_is_named(make, path):
    assert error_of(make()) == (
        f"dataset, but this failed: {path}: {LOCKED}. Create it at its first use in each process, and leave it out in "
        "__getstate__, or use start_method='fork'"
    )


def test_the_attribute_with_an_open_file_is_named():
    slotted = Slotted()
    with open(__file__) as slotted.file:
        text = error_of(Part(source=slotted))
    assert re.match("dataset, but this failed: dataset.source.file: cannot pickle '(_io.)?TextIOWrapper'", text)


def test_a_function_that_has_no_name_in_a_module():
    text = error_of(Part(transform=lambda sample: sample))
    assert text.startswith("dataset, but this failed: dataset.transform: Can't ")
    assert text.endswith("Define its functions and classes at the top level of a module, or use start_method='fork'")


def test_a_class_that_has_no_name_in_a_module():
    class Local:
        pass

    text = error_of(Local())
    assert text.startswith("dataset, but this failed: Can't ")
    assert text.endswith("Define its functions and classes at the top level of a module, or use start_method='fork'")


def test_another_argument():
    text = error_of([1], Part(lock=lock()))
    assert text.startswith(f"batchify_fn, but this failed: batchify_fn.lock: {LOCKED}. ")


def test_the_cure():
    pickle_for("spawn", Job(WithoutLock(lock=lock()), list, None, 2, 0))
