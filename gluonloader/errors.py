"""Every exception of the library, and the helpers that raise them, warn, or build their texts.

Each class also derives from a built-in exception, so that `except ValueError` or `except TimeoutError` catches it.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import multiprocessing
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    import logging

__all__ = [
    "BatchTimeout", "BatchifyError", "ColumnError", "GluonLoaderError", "ImageError", "LoaderClosed",
    "MissingExtraError", "RecordError", "SharedMemoryError", "StoreError", "TokenError", "TooManyErrors",
    "TransportError", "WorkerDied", "WorkerStartError",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)

# By the name of a drop-in whose arguments have other names: changes the words of a warning that its user gets.
words_of: Final[dict[str, Callable[[str], str]]] = {}

_MOST_TEXT: Final = 300  # characters of a summary
_WORD: Final = re.compile(r"""['"]([\w:]+)['"]""")  # in the text of an error
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "")
# The attributes of exceptions, also if a class defines attributes of these names, whose code may raise.
_CAUSE, _CONTEXT, _SUPPRESSED, _TRACEBACK = (
    vars(BaseException)[f"__{name}__"] for name in ("cause", "context", "suppress_context", "traceback")
)
_GROUPS: Final = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.10 has none


class GluonLoaderError(Exception):
    """Base class of the library's exceptions. Errors that your own code raises keep their type."""


class BatchifyError(GluonLoaderError, ValueError):
    """The samples of a batch cannot be stacked: shapes, types or keys differ.

    The text names the sample and the leaf that differs from the other samples. Crop, resize or convert the samples in
    the dataset, or pass a `batchify_fn` that can join different samples, e.g. `Pad()` for arrays of different lengths.

    Args:
        reason: what differs, and what was expected.
        row: number of the differing sample in its batch, from 0; None if no single sample differs.
        path: where the leaf lies in the sample, as Python writes it, e.g. ``['image'][0]``.
        sample: how the text names the sample; by default by its row. A loader passes the index in the dataset.
    """

    def __init__(self, reason: str, row: int | None = None, path: str = "", sample: str = "") -> None:
        super().__init__(reason, row, path, sample)
        self.reason, self.row, self.path = reason, row, path
        self.sample = sample or ("" if row is None else f"sample {row} of the batch")

    @property
    def position(self) -> int | None:
        """The old name of `row`."""
        return self.row

    def __str__(self) -> str:
        at = f" at {self.path}" if self.path else ""
        return f"{self.sample}{at}: {self.reason}" if self.sample or at else self.reason


class WorkerDied(GluonLoaderError, RuntimeError):
    """A worker process was killed or exited while it made a batch, more often than `max_retries` allows.

    The text names the signal or exit code and the samples of the batch. After SIGKILL by the kernel's out-of-memory
    killer, lower `batch_size`, `prefetch` or `num_workers`. After a crash (SIGSEGV, SIGABRT), read the named samples
    with `num_workers=0` to find the one that crashes.
    """


class WorkerStartError(GluonLoaderError, RuntimeError):
    """A worker could not start: `worker_init_fn` raised, the worker could not unpickle the dataset, or it was killed.

    The text contains the error of the worker, or says how its process ended. The loader is closed: correct the cause
    and make a new one.
    """


class BatchTimeout(GluonLoaderError, TimeoutError, multiprocessing.TimeoutError):
    """A batch took longer than `timeout` seconds.

    The text shows the stack of the worker that makes the batch; with `attach`, it says for whom the server waits. If
    the worker hangs (in a lock or a network read, for example), correct the code at the top of that stack. If it is
    only slow, pass a larger `timeout`, or None for no limit.
    """


class TooManyErrors(GluonLoaderError, RuntimeError):
    """More samples of an epoch raised an error than the limit of `on_error` allows.

    The text lists the first ten samples with their errors. Repair or remove the samples, or pass a larger limit.
    The epoch ends; the state of the loader is the position before the batch that exceeded the limit.
    """


class LoaderClosed(GluonLoaderError, RuntimeError):
    """A loader or an iterator was used after it was closed, or it was closed while another thread waited for a batch.

    Iterate inside the loader's `with` block, or make a new loader. For a loader of `attach`, it also means that the
    server has ended; then call `reconnect()`.
    """


class TransportError(GluonLoaderError, TypeError):
    """The dataset or a batch cannot be pickled or unpickled, so it cannot travel between processes.

    The text names the object. Return arrays, numbers and texts from the dataset; open files and connections in
    `worker_init_fn`; or use `executor="thread"`, which does not need to pickle anything.

    Attributes:
        needs: what needs the pickle, such as "start_method='spawn'"; "" if the text says all.
        part: what cannot be pickled, such as "dataset.file".
        reason: the error of pickling it.
        cure: what to do.
    """

    needs = part = reason = cure = ""


class SharedMemoryError(GluonLoaderError, OSError):
    """A batch does not fit into the shared memory that the system or `memory_limit` allows.

    The text says how many bytes the batch needs and which limit was reached. Lower `batch_size` or `prefetch`, keep
    references to fewer batches at a time, or raise `memory_limit`.
    """


class ImageError(GluonLoaderError, ValueError):
    """An image cannot be decoded: the data are no image, are truncated or damaged, or the image is too large.

    The text says what is wrong, and names the file if the image comes from a file. Copy the file again or remove it. If
    its pixels are of a kind that is not decoded, convert it to PNG. If the image is too large, pass a larger
    `max_pixels`.
    """


class RecordError(GluonLoaderError, ValueError):
    """A RecordIO file or its index is damaged or truncated, or the index belongs to another file.

    The text names the file, the byte where the damage was found, and what was expected there. Copy the file again if it
    is truncated, and rebuild an index that does not fit with `gluonloader.records.build_index`. `python -m gluonloader
    records check FILE` lists all damaged records.

    Args:
        reason: what was found, and what was expected.
        file: the path of the file; empty if a single record is wrong, whose file is not known.
        offset: where in the file, in bytes; None if the whole file is wrong.
    """

    def __init__(self, reason: str, file: str = "", offset: int | None = None) -> None:
        super().__init__(reason, file, offset)
        self.reason, self.file, self.offset = reason, file, offset

    def __str__(self) -> str:
        at = "" if self.offset is None else f", byte {self.offset}"
        return f"{self.file}{at}: {self.reason}" if self.file else self.reason


class ColumnError(GluonLoaderError, ValueError):
    """A column of a table, or an array in a file, cannot be read: it is damaged or encrypted, or has an unknown format.

    The text names the file and the column, and says what to do. The error of the library that reads the file is the
    `__cause__`. If the file is missing or the system cannot read it, the error is an `OSError` instead.

    Args:
        reason: what is wrong, and what to do.
        file: the path of the file; empty for a table in memory.
        column: the name of the column or array; empty if the whole file is wrong.
    """

    def __init__(self, reason: str, file: str = "", column: str = "") -> None:
        super().__init__(reason, file, column)
        self.reason, self.file, self.column = reason, file, column

    def __str__(self) -> str:
        where = [self.file] if self.file else []
        where += [f"column {self.column!r}"] if self.column else []
        return ": ".join([*([", ".join(where)] if where else []), self.reason])


class TokenError(GluonLoaderError, ValueError):
    """A file of tokens or its index was cut or is damaged, or a document has a token that it must not have.

    The text names the file and the document. Copy the files again, or make them again; `python -m gluonloader tokens
    check FILE` lists the damaged documents.
    """


class MissingExtraError(GluonLoaderError, ImportError):
    """An optional package is not installed. The text contains the `pip install` command that installs it.

    Args:
        extra: the extra of gluonloader that installs the package.
        package: how the text names the package; by default, by the extra.

    Attributes:
        command: the command that installs the package.
    """

    def __init__(self, extra: str, package: str = "") -> None:
        super().__init__(extra, package)
        self.extra, self.package, self.command = extra, package, install_command(extra)

    def __str__(self) -> str:
        return f"{self.package or self.extra} is not installed; run {self.command}"


class StoreError(GluonLoaderError, OSError):
    """A part of an object could not be fetched from a store, or the folder of its cache cannot be used.

    The text names the object, the block and the bytes, and the last answer of the store. If the object was changed,
    make the dataset again. If the store refuses the object, set the environment variables of its client. If it only
    takes long, pass a larger `timeout` to `NodeCache`.
    """


class RemoteTraceback(Exception):
    """The traceback of a worker as text; it is the `__cause__` of an exception that was raised in the worker.

    It is never raised itself. Read it to see which line failed in the worker. The text starts with the sample, the
    batch and the worker; see `hide_own_frames` for the frames that it shows. An error of the library has no such cause
    if the traceback would only repeat its text.
    """


def install_command(extra: str) -> str:
    """Returns the command that installs the packages of an extra.

    If the library runs from a clone that is not installed, pip finds it only by its path.
    """
    import importlib.metadata  # slow, and rarely needed

    clone = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        importlib.metadata.distribution("gluonloader")
    except importlib.metadata.PackageNotFoundError:
        if os.path.exists(os.path.join(clone, "pyproject.toml")):
            return f'pip install -e "{clone}[{extra}]"'
    return f'pip install "gluonloader[{extra}]"'


def import_extra(module: str, extra: str, package: str = "") -> ModuleType:
    """Imports a module of an optional package; raises MissingExtraError if the package is not installed."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise MissingExtraError(extra, package) from error
    if getattr(found, "__file__", "") is None:  # a folder of this name, such as one in the working directory
        raise MissingExtraError(extra, package)
    return found


def add_note(error: BaseException, note: str) -> None:
    """Adds a line that is shown below the exception's traceback (Python 3.10 only stores it, in `__notes__`).

    Never raises, so that the exception is not lost: the attributes of some exceptions cannot be set.
    """
    with suppress(Exception):
        error.__dict__["__notes__"] = [*notes_of(error), note]


def notes_of(error: BaseException) -> list[str]:
    """The notes of an exception; never raises, whatever `__notes__` is."""
    try:
        return [text_of(note) for note in getattr(error, "__notes__", ())]
    except Exception:
        return []


def text_of(value: object) -> str:
    """`str(value)`; never raises, although the `__str__` of a user's exception may."""
    try:
        return "".join([str(value)])  # an exact str, although `__str__` may return an object of a subclass
    except (Exception, SystemExit) as failure:
        return f"its __str__ raised {type(failure).__name__}"


def as_exception(error: BaseException, raiser: str) -> Exception:
    """The error, or a RuntimeError in its place if it would end a loop or the program."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    replacement = RuntimeError(f"{raiser} raised {type(error).__name__}({text_of(error)})")
    replacement.__cause__ = error
    return replacement


def a_class(value: object) -> str:
    """The class of a value with its article: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def hide_own_frames(error: E) -> E:
    """Removes the frames of this library from the tracebacks of an error and of the errors that led to it.

    So a traceback shows the user's frames only. The frame that raised the error stays, even if it belongs to the
    library, unless the error is one of the library's own, whose text says everything, or was raised in a worker, or is
    that of Ctrl-C. If the environment variable GLUONLOADER_FULL_TRACEBACK is set, all frames stay.
    """
    if _hides_frames():
        seen: set[int] = set()
        errors: list[BaseException | None] = [error]
        while errors:
            other = errors.pop()
            if isinstance(other, BaseException) and id(other) not in seen:
                seen.add(id(other))
                forget_variables(other)
                _TRACEBACK.__set__(other, _without_own_frames(other))
                errors += [_CAUSE.__get__(other), _CONTEXT.__get__(other)]
                if issubclass(type(other), _GROUPS):
                    with suppress(Exception):
                        errors += getattr(other, "exceptions", ())
    return error


def _hides_frames() -> bool:
    return os.environ.get("GLUONLOADER_FULL_TRACEBACK", "0") in ("", "0")


def _steps_of(error: BaseException) -> list[TracebackType]:
    steps: list[TracebackType] = []
    step: TracebackType | None = _TRACEBACK.__get__(error)
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return steps


def _without_own_frames(error: BaseException) -> TracebackType | None:
    steps = _steps_of(error)
    is_ours = isinstance(error, (GluonLoaderError, KeyboardInterrupt))
    explained = is_ours or isinstance(_CAUSE.__get__(error), RemoteTraceback)
    kept = None
    for number, step in enumerate(reversed(steps)):
        own = step.tb_frame.f_code.co_filename.startswith(_FOLDER)
        if not own or (number == 0 and not explained):
            # Ctrl-C may interrupt an instruction that belongs to no line; then `tb_lineno` is None.
            line = step.tb_lineno or step.tb_frame.f_code.co_firstlineno
            kept = TracebackType(kept, step.tb_frame, step.tb_lasti, line)
    return kept


def forget_variables(error: BaseException) -> None:
    """Deletes the local variables of the library's functions that have ended, in the traceback and in their callers.

    Some of these variables refer to the error, and the traceback refers to them: such a cycle would keep the dataset
    and batches in memory until the next garbage collection.
    """
    seen: set[FrameType] = set()
    for step in _steps_of(error) if _hides_frames() else ():
        frame: FrameType | None = step.tb_frame
        while frame is not None and frame not in seen:
            seen.add(frame)
            code = frame.f_code
            # `clear` would end a generator that goes on.
            if code.co_filename.startswith(_FOLDER) and not code.co_flags & inspect.CO_GENERATOR:
                with suppress(RuntimeError):  # the function has not ended
                    frame.clear()
            frame = frame.f_back


def says_everything(error: BaseException) -> bool:
    """Whether it is an error of the library whose traceback, without own frames, would only repeat its text."""
    alone = _CAUSE.__get__(error) is None and (_SUPPRESSED.__get__(error) or _CONTEXT.__get__(error) is None)
    return issubclass(type(error), GluonLoaderError) and _TRACEBACK.__get__(error) is None and alone


def summary_of(error: BaseException) -> str:
    """The type, the text and the notes of an error, in one line of limited length."""
    return shortened(" ".join("; ".join([f"{type(error).__name__}: {text_of(error)}", *notes_of(error)]).split()))


def shortened(text: str) -> str:
    """The text of an error, cut after a limited length."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


def bad_argument(name: str, value: object, expected: str) -> ValueError:
    """Returns the error for a wrong argument; `expected` says which values are right.

    >>> bad_argument("executor", "threads", "must be 'thread' or 'process'")
    ValueError("executor='threads': must be 'thread' or 'process'; did you mean 'thread'?")
    """
    return ValueError(f"{name}={_shown(value)}: {expected}{_did_you_mean(value, expected)}")


def bad_state(field: str, value: object, expected: str) -> ValueError:
    """Returns the error for a field of a state that does not fit; `expected` says which value fits."""
    return ValueError(f"state: {field}={_shown(value)}: {expected}")


def similar(word: str, words: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The most similar of the words, if it is similar enough; `cutoff` is from 0 to 1."""
    from difflib import get_close_matches  # only an error needs it

    return get_close_matches(word, list(words), 1, cutoff)


def _did_you_mean(value: object, expected: str) -> str:
    """Names the word in `expected` to which a wrong word is similar; "" if there is none."""
    words = _WORD.findall(expected) if isinstance(value, str) and expected.startswith("must be ") else []
    close = similar(str(value).lower(), words)
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    try:
        return f"{value!r:.200}"
    except Exception as failure:  # e.g. RecursionError, if it is nested deeply
        return f"<{type(value).__name__} whose repr() raised {type(failure).__name__}>"


def warn(text: str) -> None:
    """Emits a RuntimeWarning that shows the line of the user's program that called the library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (name := frame.f_globals.get("__name__", "")).startswith(f"{__package__}."):
        text = words_of.get(name.split(".")[1], str)(text)
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def logger() -> logging.Logger:
    """Where the library logs. `logging` is imported for the first message, since that takes 5 ms."""
    import logging

    return logging.getLogger("gluonloader")


def explain_arguments(**replacements: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function: its error for an argument of a similar function, or a misspelled one, names the right one.

    Args:
        replacements: by argument of the similar function: what to pass instead.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, known = function.__qualname__.removesuffix(".__init__"), inspect.signature(function).parameters

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for argument in kwargs:
                if argument in replacements:
                    raise TypeError(f"{name}() has no argument {argument}: {replacements[argument]}")
                if argument not in known and (close := similar(argument, known)):
                    what = f"{name}() got an unexpected keyword argument {argument!r}"
                    raise TypeError(f"{what}; did you mean {close[0]}?")
            try:
                return function(*args, **kwargs)
            except BaseException as error:  # also Ctrl-C
                error = hide_own_frames(error)
                raise error  # GLUONLOADER_FULL_TRACEBACK=1 shows all frames

        return checked

    return decorate
