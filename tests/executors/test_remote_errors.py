"""Exceptions between processes: the user's own type, arguments, notes and traceback, whatever the type is like."""

import builtins
import pickle
import threading
import traceback

import pytest

from gluonloader import BatchifyError
from gluonloader.errors import GluonLoaderError, RemoteTraceback, SharedMemoryError, add_note
from gluonloader.executors.process.remote import decode_error, encode_error


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


def test_an_os_error_keeps_its_number_and_file():
    there = over(FileNotFoundError(2, "No such file", "x.jpg"))
    assert (there.errno, there.filename) == (2, "x.jpg")


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


@pytest.mark.parametrize("error", [BadReduce("wrong"), Unrevivable("wrong"), NoText("wrong")])
def test_an_error_that_cannot_travel_still_arrives_and_names_its_type(error):
    error.detail = 1
    there = over(error)
    assert isinstance(there, Exception)
    text = str(there) if type(there) is not NoText else "NoText"
    assert type(there) is type(error) or type(error).__name__ in text


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


def test_what_travels_is_a_plain_pickle():
    data = encode_error(raised(ValueError("wrong")), "w")
    assert isinstance(data, bytes)
    assert pickle.loads(data) is not None


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="Python 3.10 has none")
def test_an_error_group_arrives_whole():
    there = over(builtins.ExceptionGroup("several", [ValueError("one"), KeyError("two")]))
    assert type(there) is builtins.ExceptionGroup
    assert [type(error) for error in there.exceptions] == [ValueError, KeyError]
