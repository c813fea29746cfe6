"""Which errors of libraries become a ColumnError."""

import errno
import signal

import pytest

from gluonloader.errors import ColumnError, MissingExtraError
from gluonloader.tables.unreadable import reading


def raised(error, file="a.h5", column="x"):
    with pytest.raises(BaseException) as caught:
        with reading("its rows cannot be read", "copy it again", file, column):
            raise error
    return caught.value


@pytest.mark.parametrize("error", [OSError("inflate() failed"), ValueError("2"), SyntaxError("3"), RuntimeError("4")])
def test_an_error_about_the_content_names_the_file_and_the_cure(error):
    found = raised(error)
    text = f"a.h5, column 'x': its rows cannot be read ({type(error).__name__}: {error}); copy it again"
    assert (type(found), str(found), found.__cause__) == (ColumnError, text, error)
    assert str(raised(error, column="")) == text.replace(", column 'x'", "")
    assert str(raised(error, file="")) == text.replace("a.h5, ", "")


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("a.zarr"), OSError(errno.EIO, "I/O error"), MemoryError(), MissingExtraError("hdf5", "h5py")],
    ids=repr,
)
def test_an_error_that_is_not_about_the_content_keeps_its_type(error):
    assert raised(error) is error
    assert error.__notes__ == ["gluonloader: a.h5, column 'x': its rows cannot be read"]


def test_a_column_error_gets_the_file():
    found = raised(ColumnError("it contains a null", "", "n"))
    assert (found.file, found.column, found.reason) == ("a.h5", "n", "it contains a null")
    known = ColumnError("it contains a null", "b.h5", "n")
    assert raised(known) is known


class Alarm(Exception):
    pass


def test_an_exception_of_a_signal_handler_keeps_its_type():
    def handler(number, frame):
        raise Alarm

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Alarm):
            with reading("its rows cannot be read", "copy it again", "a.h5"):
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, old)
