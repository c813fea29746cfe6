"""Exceptions between processes: the user's own type, arguments, notes and traceback, whatever the type is like."""

import asyncio
import builtins
import dataclasses
import os
import sys
import threading
import traceback
from functools import partial

import pytest
from conftest import FORK, ONE_FORK, SERIAL, THREAD

import gluonloader as gl
from gluonloader.errors import (
    BatchifyError,
    GluonLoaderError,
    RemoteTraceback,
    SharedMemoryError,
    WorkerStartError,
    add_note,
)
from gluonloader.executors.lanes.remote import RemoteError, decode_error, encode_error


class TwoArguments(Exception):
    """Keeps one argument, wants two: pickling by its constructor fails."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class Rephrasing(Exception):
    """Its constructor takes what it keeps, but makes another text of it."""

    def __init__(self, code, hint="none"):
        super().__init__(f"code {code}, hint {hint}")


class KeywordOnly(ValueError):
    def __init__(self, *, path):
        super().__init__(f"cannot read {path}")
        self.path = path


class NoText(Exception):
    def __str__(self):
        raise ZeroDivisionError("no text today")


class BadReduce(Exception):
    def __reduce__(self):
        return (print, ())  # does not give an exception


class Unrevivable(Exception):
    def __setstate__(self, state):
        raise RuntimeError("not here")


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def over(error, who="in worker 3 (pid 77)"):
    return decode_error(encode_error(raised(error), who))


@pytest.mark.parametrize("error", [
    ValueError("wrong", 3),
    KeyError("key"),
    OSError(2, "No such file", "name"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    TwoArguments(7, "text"),
    KeywordOnly(path="x.jpg"),
    Rephrasing(3),
    BatchifyError("shape (3,)", 4, "['x']"),
    SharedMemoryError(28, "no room"),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_type_arguments_text_and_attributes_are_kept(error):
    there = over(error)
    assert type(there) is type(error)
    assert there.args == error.args
    assert str(there) == str(error)
    assert {k: v for k, v in vars(there).items() if k != "__notes__"} == {
        k: v for k, v in vars(error).items() if k != "__notes__"
    }


def test_attributes_that_are_added_are_kept():
    error = ValueError("wrong")
    error.index = 5
    assert over(error).index == 5


def test_an_argument_that_reads_differently_over_there_keeps_the_type():
    there = over(ValueError(object()))  # its text tells an address
    assert type(there) is ValueError
    assert type(there.args[0]) is object


def test_an_attribute_that_cannot_be_pickled_does_not_hide_the_error():
    error = TwoArguments(7, "text")
    error.lock = threading.Lock()
    there = over(error)
    assert "TwoArguments" in f"{type(there).__name__}: {there}"
    assert "7: text" in str(there)


def test_a_local_class_becomes_an_error_of_ours_that_names_it():
    class Local(ValueError):
        pass

    there = over(Local("wrong"))
    assert isinstance(there, GluonLoaderError)
    assert isinstance(there, RuntimeError)
    assert str(there).endswith("Local: wrong")
    assert __name__ in str(there)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_the_users_program_becomes_an_error(error):
    there = over(error)
    assert isinstance(there, GluonLoaderError)
    assert type(error).__name__ in str(there)


def test_the_cause_shows_the_workers_traceback():
    def dataset_reads():
        raise LookupError("deep inside")

    try:
        dataset_reads()
    except LookupError as error:
        there = decode_error(encode_error(error, "in worker 3"))
    cause = there.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in dataset_reads" in str(cause)
    assert "LookupError: deep inside" in str(cause)
    shown = "".join(traceback.format_exception(there))
    assert "in dataset_reads" in shown
    assert shown.rstrip().splitlines()[-1].endswith("in worker 3")


def test_the_cause_shows_what_the_error_came_from():
    try:
        try:
            raise OSError("first")
        except OSError as first:
            raise ValueError("second") from first
    except ValueError as error:
        shown = str(decode_error(encode_error(error, "w")).__cause__)
    assert shown.index("OSError: first") < shown.index("ValueError: second")


def test_notes_come_once_each_with_ours_last():
    error = ValueError("wrong")
    add_note(error, "of the user")
    add_note(error, "of the batch")
    assert over(error, "in worker 3 (pid 77)").__notes__ == [
        "of the user", "of the batch", "gluonloader: in worker 3 (pid 77)",
    ]  # fmt: skip


def test_the_original_error_is_left_as_it_was():
    error = raised(TwoArguments(7, "text"))
    add_note(error, "mine")
    encode_error(error, "w")
    assert error.__notes__ == ["mine"]
    assert error.__cause__ is None
    assert error.code == 7


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="Python 3.10 has none")
def test_an_error_group_arrives_whole():
    there = over(builtins.ExceptionGroup("several", [ValueError("one"), KeyError("two")]))
    assert type(there) is builtins.ExceptionGroup
    assert [type(error) for error in there.exceptions] == [ValueError, KeyError]


# -- exceptions whose own code fails ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Refuses that attributes are set, also `__cause__` and `__notes__`."""

    code: int


class ArgsRaise(ValueError):
    @property
    def args(self):
        raise LookupError("no args today")


class ArgsAreNone(ValueError):
    args = None


class StrIsNoText(ValueError):
    def __str__(self):
        return 3


class StrExits(ValueError):
    def __str__(self):
        raise SystemExit(3)


class StrRaisesItself(ValueError):
    def __str__(self):
        raise self


class ReduceRaises(ValueError):
    def __reduce__(self):
        raise LookupError("not me")


class ReduceExits(ValueError):
    def __reduce__(self):
        raise SystemExit(3)


class Pretender(SystemExit):
    """Says that it is a ValueError, but `except Exception` does not catch it."""

    __class__ = property(lambda self: ValueError)


class NotesRaise(ValueError):
    @property
    def __notes__(self):
        raise LookupError("no notes today")


class DictRaises(ValueError):
    @property
    def __dict__(self):
        raise LookupError("no attributes today")


class CauseAndTracebackRaise(ValueError):
    @property
    def __cause__(self):
        raise LookupError("no cause today")

    @property
    def __traceback__(self):
        raise LookupError("no traceback today")


class Nameless(type):
    __module__ = property(lambda self: 1 / 0)


class OfNameless(ValueError, metaclass=Nameless):
    pass


class OnlyInItsWorker(ValueError):
    """Can be unpickled only in the process that pickled it."""

    def __reduce__(self):
        return revive_in, (os.getpid(), *self.args)


def revive_in(pid, *args):
    if os.getpid() != pid:
        raise LookupError("not here")
    return OnlyInItsWorker(*args)


class TextOfItsOwn(str):
    __reduce__ = None


def with_notes(notes):
    error = ValueError("wrong")
    error.__notes__ = notes
    return error


def with_deep_causes():
    error = ValueError("wrong")
    for number in range(5000):
        next_error = ValueError(f"wrong {number}")
        next_error.__cause__ = error
        error = next_error
    return error


def with_deep_groups():
    error = ValueError("wrong")
    for _ in range(5000):
        error = builtins.ExceptionGroup("several", [error])
    return error


WICKED = {
    "frozen": (lambda: Frozen(7), Frozen),
    "args raise": (lambda: ArgsRaise("wrong"), ArgsRaise),
    "args are None": (lambda: ArgsAreNone("wrong"), ArgsAreNone),
    "args do not pickle": (lambda: ValueError("wrong", threading.Lock()), None),
    "args are a lambda": (lambda: ValueError(lambda: 0), None),
    "str is no text": (lambda: StrIsNoText("wrong"), StrIsNoText),
    "str exits": (lambda: StrExits("wrong"), None),
    "str raises itself": (lambda: StrRaisesItself("wrong"), StrRaisesItself),
    "str of a local class": (lambda: ValueError(TextOfItsOwn("wrong")), None),
    "reduce is no exception": (lambda: BadReduce("wrong"), BadReduce),
    "state raises": (lambda: Unrevivable("wrong"), Unrevivable),
    "str raises": (lambda: NoText("wrong"), NoText),
    "reduce raises": (lambda: ReduceRaises("wrong"), ReduceRaises),
    "reduce exits": (lambda: ReduceExits("wrong"), ReduceExits),
    "another class": (lambda: Pretender("wrong"), None),
    "notes raise": (lambda: NotesRaise("wrong"), NotesRaise),
    "notes are a number": (lambda: with_notes(3), ValueError),
    "notes are numbers": (lambda: with_notes([3, None]), ValueError),
    "notes do not pickle": (lambda: with_notes([threading.Lock()]), ValueError),
    "note whose str raises": (lambda: with_notes([NoText()]), ValueError),
    "attributes raise": (lambda: DictRaises("wrong"), None),
    "a class without a name": (lambda: OfNameless("wrong"), None),
    "only in its worker": (lambda: OnlyInItsWorker("wrong"), None),
    "deep causes": (with_deep_causes, ValueError),
    "deep arguments": (lambda: ValueError("wrong", deep_list(100_000)), None),
}  # fmt: skip
if hasattr(builtins, "ExceptionGroup"):
    # From Python 3.14 on, pickle goes deeper.
    WICKED["deep groups"] = with_deep_groups, builtins.ExceptionGroup if sys.version_info >= (3, 14) else None
    WICKED["a group of what does not pickle"] = (
        lambda: builtins.ExceptionGroup("wrong", [ValueError(threading.Lock())]), None
    )  # fmt: skip


def deep_list(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class Raising:
    """Each sample raises an error, except sample 2."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 2:
            return index
        raise self.make()


@pytest.mark.parametrize("name", WICKED)
def test_an_error_whose_own_code_fails_arrives_with_its_type_or_what_can_be_said(name):
    make, kind = WICKED[name]
    with ONE_FORK.loader(Raising(make), 1) as loader:
        iterator = iter(loader)
        for batch in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                next(iterator)
            error = caught.value
            assert type(error) is (kind or RemoteError)
            assert isinstance(error.__cause__, RemoteTraceback)
            assert "raise self.make()" in str(error.__cause__)
            if type(error) is not NotesRaise:
                assert error.__notes__[-1].startswith("gluonloader: in worker ")
            if kind is None:
                name_of = {"a class without a name": "a class without a name"}.get(name, type(make()).__qualname__)
                assert name_of in str(error), batch
        assert next(iterator).tolist() == [2]


def test_an_error_without_cause_and_traceback_arrives():
    with ONE_FORK.loader(Raising(lambda: CauseAndTracebackRaise("wrong")), 1) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(CauseAndTracebackRaise):
                next(iterator)
        assert next(iterator).tolist() == [2]


@pytest.mark.parametrize("name", ["str raises itself", "args raise", "str exits", "frozen"])
def test_a_worker_that_cannot_start_names_an_error_whose_own_code_fails(name, any_way):
    make, _ = WICKED[name]

    def start(info):
        raise make()

    with any_way.loader(range(4), 2, worker_init_fn=start) as loader:
        with pytest.raises(WorkerStartError, match=type(make()).__name__):
            next(iter(loader))


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_an_error_that_refuses_notes_arrives(way):
    with way.loader(Raising(lambda: Frozen(7)), 1) as loader:
        with pytest.raises(Frozen) as caught:
            next(iter(loader))
    assert caught.value.code == 7
    assert caught.value.__notes__[0] == "gluonloader: in dataset[0], batch 0 of epoch 0"


def test_an_error_too_large_for_shared_memory_is_shortened():
    with ONE_FORK.loader(Raising(lambda: OSError("wrong" + "x" * (8 << 20))), 1, memory_limit="2MB") as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(RemoteError, match="^builtins.OSError: wrongxxx") as caught:
                next(iterator)
            assert "this error was shortened: its 25," in caught.value.__notes__[-1]
            assert "raise self.make()" in str(caught.value.__cause__)
        assert next(iterator).tolist() == [2]


ENDING = [KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError]


class Streaming(gl.IterableDataset):
    """Raises an error instead of its second sample."""

    def __init__(self, kind):
        self.kind = kind

    def __iter__(self):
        yield 0
        raise self.kind


class Awaited(Raising):
    async def __getitem__(self, index):
        return super().__getitem__(index)


class Fails(Raising):
    def __call__(self, samples):
        return [self[index] for index in samples]


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
@pytest.mark.parametrize("kind", ENDING)
def test_a_dataset_that_raises_what_ends_programs_fails_one_batch(kind, way):
    if way is SERIAL and kind is KeyboardInterrupt:
        pytest.skip("in the main thread, it is the user who interrupts the program")
    make = partial(kind, "enough")
    for dataset, function in [(Raising(make), list), (Awaited(make), list), (range(3), Fails(make))]:
        with way.loader(dataset, 1, batchify_fn=function) as loader:
            iterator = iter(loader)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=rf" raised {kind.__name__}\(enough\)"):
                    next(iterator)
            assert next(iterator) == [2]
    with way.loader(Raising(make), 2, batchify_fn=list, concurrency=2) as loader:
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match=rf"^dataset\[0\] raised {kind.__name__}\(enough\)"):
            next(iterator)
        assert next(iterator) == [2]
    with way.loader(gl.IterableDataset(Streaming(kind), num_shards=1), 1) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0]
        with pytest.raises(RuntimeError, match=f"^Streaming raised {kind.__name__}"):
            next(iterator)
        assert list(iterator) == []
