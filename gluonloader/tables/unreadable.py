"""`reading`: explains the errors of libraries that cannot read a column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ColumnError, GluonLoaderError, add_note, summary_of
from ..interrupts import from_signal_handler


@contextmanager
def reading(reason: str, cure: str, file: str, column: str = "") -> Iterator[None]:
    """Makes the errors of the block to `ColumnError` that name the file and the column, and say what to do.

    An error keeps its type and gets a note if the content of the file is not the cause: an error of the system, such as
    a missing file, or of this library; too little memory; or an exception of a signal handler.
    """
    try:
        yield
    except ColumnError as error:
        if error.file or not file:
            raise
        raise ColumnError(error.reason, file, error.column) from error.__cause__
    except Exception as error:
        if not is_of_content(error):
            add_note(error, f"gluonloader: {ColumnError(reason, file, column)}")
            raise
        raise ColumnError(f"{reason} ({summary_of(error)}); {cure}", file, column) from error


def is_of_content(error: Exception) -> bool:
    """Whether the content of the file may be the cause of the error."""
    of_system = isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno is not None)
    return not (of_system or isinstance(error, (GluonLoaderError, MemoryError)) or from_signal_handler(error))
