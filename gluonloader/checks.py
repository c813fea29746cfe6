"""Checks of arguments. Each check raises a ValueError with the argument, its value and the values that are allowed."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import numpy as np

from .errors import bad_argument, similar

ExecutorName = Literal["serial", "thread", "process", "ray", "auto"]
LastBatch = Literal["keep", "discard", "rollover"]
ErrorAction = Literal["raise", "skip", "replace"] | Callable[[Exception, Any], Any]

SEEDS: Final = range(-(2**63), 2**64)  # ints of 64 bits, with and without a sign

_MIN_MEMORY_LIMIT: Final = 1 << 20  # bytes; a loader needs about that much for one small batch
_CLOSE: Final = 0.8  # similarity of a misspelled name
_SHORT: Final = 4  # characters; a name as short as `rank` is similar to many names
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def check_int(name: str, value: Any, least: int | None = 0, expected: str = "") -> int:
    """Returns the argument as an int, at least `least` unless that is None; `expected` replaces the error text."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or (least is not None and value < least):
        raise bad_argument(name, value, expected or "must be an int" + ("" if least is None else f" >= {least}"))
    return int(value)


def as_dtype(dtype: Any, expected: str = "must be a dtype of NumPy, e.g. 'float32'") -> np.dtype[Any]:
    """Returns the argument `dtype` as a dtype of NumPy; `expected` replaces the error text."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError:
        raise bad_argument("dtype", dtype, expected) from None


def check_shard(num_shards: Any, index: Any) -> tuple[int, int]:
    """Returns the arguments of a method `shard` as ints, `0 <= index < num_shards`."""
    shards, shard = check_int("num_shards", num_shards, 1), check_int("index", index)
    if shard >= shards:
        raise bad_argument("index", index, f"must be an int from 0 to num_shards - 1 ({shards - 1})")
    return shards, shard


def check_flags(**flags: object) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, (bool, int, np.bool_)):
            raise bad_argument(name, flag, "must be True or False")


def is_one_of(value: object, words: Iterable[str]) -> bool:
    """Whether an argument is one of these texts; `in` fails for arrays, which are compared element by element."""
    return isinstance(value, str) and value in words


def check_functions(**functions: object) -> None:
    for name, function in functions.items():
        if function is not None:
            check_function(name, function, "must be a function or None")


def check_function(name: str, function: object, expected: str = "must be a function") -> None:
    if not callable(function):
        raise bad_argument(name, function, expected)
    # A class without __call__, such as `list`, is accepted: the user may want to call the class itself. All classes
    # inherit a __call__ from `type`, but `dir` of a class does not show it.
    if isinstance(function, type) and "__call__" in dir(function):
        raise bad_argument(name, function, f"it is a class; pass an object of the class: {function.__name__}()")


def is_async_function(function: Any) -> bool:
    """Whether a call returns something that has to be awaited."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def check_predicate(name: str, function: object) -> None:
    check_function(name, function)
    if is_async_function(function):
        raise bad_argument(name, function, "it is `async def`, so its result is always true; pass an ordinary function")


def check_attribute(constructor: Callable[..., object], replacements: Mapping[str, str], name: str, value: Any) -> None:
    """Raises an AttributeError for an attribute with, or almost with, the name of an argument, which it cannot change.

    Args:
        constructor: the constructor that has the arguments.
        replacements: names of other arguments that users may know, and what to pass instead.
        value: the value of the attribute.
    """
    arguments, call = inspect.signature(constructor).parameters, constructor.__qualname__.removesuffix(".__init__")
    if name in replacements:
        raise AttributeError(f"a {call} has no attribute {name}; make a new one: {replacements[name]}")
    close = [name] if name in arguments else similar(name, arguments, _CLOSE)
    # A name that contains the name of an argument, such as `datasets`, is no misspelling; nor is a short one.
    if close and (close[0] == name or (len(name) > _SHORT and close[0] not in name)):
        what = f"{name} of a {call} cannot be changed"
        if close[0] != name:
            what = f"a {call} has no attribute {name}; did you mean {close[0]}? It cannot be changed"
        shown = f"{value!r:.60}" if isinstance(value, (int, float, str, tuple)) else "..."
        raise AttributeError(f"{what}; pass it to the constructor: {call}(..., {close[0]}={shown})")


def check_indices(name: str, indices: Any, example: str) -> None:
    """Checks that an argument is an iterable of `example`; for a class or a text, the error says what to pass."""
    if isinstance(indices, type):
        call = f"{indices.__name__}({'len(dataset)' if name == 'sampler' else '...'})"
        raise bad_argument(name, indices, f"it is a class; pass an object of the class: {call}")
    # Python also iterates over objects that have only __getitem__, but not over arrays and numbers without a dimension.
    iterates = (hasattr(indices, "__iter__") or hasattr(indices, "__getitem__")) and getattr(indices, "ndim", 1) != 0
    if not iterates or isinstance(indices, str):
        cure = "; for a random order, pass shuffle=True" if isinstance(indices, str) else ""
        raise bad_argument(name, indices, f"must be an iterable of {example}{cure}")


def cure_of(dataset: Any, name: str) -> str:
    """Says what to pass instead of an object that has no samples at 0, 1, 2, ...; "" if the object may be a dataset."""
    kind = type(dataset)
    if kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and hasattr(kind, "columns"):
        return "pass ArrowDataset(table), whose samples are the rows of the table"
    index = getattr(dataset, "index", None) if hasattr(kind, "iloc") else range(0)  # of a column of pandas
    if (getattr(index, "start", None), getattr(index, "step", None)) != (0, 1):
        return "its elements are found by the labels of its index, not by 0, 1, 2, ...; pass series.to_numpy()"
    loaders = ("torch.utils.data", "mxnet.gluon", "gluonloader")
    if any(base.__name__ == "DataLoader" and base.__module__.startswith(loaders) for base in kind.__mro__):
        return "it yields batches, not samples; pass its dataset, or use bridge(loader) to read its batches ahead"
    if isinstance(dataset, Mapping) and isinstance(next(iter(dataset), None), str):
        right = f"pass StackDataset(**{name}), whose samples are dicts, or one of its values"
        return f"its keys are strings, not indices; {right}"
    return ""


def check_indexed(name: str, dataset: Any) -> None:
    """Checks that the samples of a dataset that has a length are at the indices 0, 1, 2, ..."""
    if right := cure_of(dataset, name):
        raise bad_argument(name, dataset, right)
    if not hasattr(dataset, "__getitem__"):
        raise bad_argument(name, dataset, "it cannot be indexed; pass a list, an array or a dataset with __getitem__")


def is_number(value: Any) -> bool:
    """Whether an argument is a real number of Python or NumPy that fits in a float, and no bool."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """Whether an argument is a number > 0; it may be infinite."""
    return is_number(value) and bool(value > 0)


def check_number(name: str, value: Any, least: float, expected: str) -> None:
    """Checks an argument that is a finite number, at least `least`."""
    if not is_number(value) or not least <= value < math.inf:
        raise bad_argument(name, value, expected)


def check_timeout(timeout: Any) -> None:
    if timeout is not None and not is_positive(timeout):
        raise bad_argument("timeout", timeout, "must be a number of seconds > 0, or None to wait without limit")


def check_last_batch(value: Any) -> LastBatch:
    """Checks the argument `last_batch`."""
    if not is_one_of(value, ("keep", "discard", "rollover")):
        drops = value is True or (isinstance(value, str) and value.startswith("drop"))  # torch's words
        cure = "; to drop a last batch that is too short, pass 'discard'" if drops else ""
        raise bad_argument("last_batch", value, f"must be 'keep', 'discard' or 'rollover'{cure}")
    checked: LastBatch = value
    return checked


def check_error_action(name: str, value: Any) -> ErrorAction:
    """Checks an argument that says what to do if a sample raises an error."""
    if not callable(value) and not is_one_of(value, ("raise", "skip", "replace")):
        raise bad_argument(name, value, "must be 'raise', 'skip', 'replace' or a function of error and sample")
    if inspect.iscoroutinefunction(value):
        raise bad_argument(name, value, "must be an ordinary function, since it is not awaited; not `async def`")
    checked: ErrorAction = value
    return checked


def parse_bytes(limit: int | str | None) -> int | None:
    """Returns the bytes of a memory limit; None for no limit."""
    return None if limit is None else parse_size(limit, "memory_limit", _MIN_MEMORY_LIMIT, ", or None for no limit")


def parse_size(value: int | str, name: str, least: int, instead: str = "") -> int:
    """Returns the bytes of a size such as 268435456, "256MB" or "1.5 GiB" (units of 1024).

    Args:
        name: of the argument.
        least: the smallest size.
        instead: what else may be passed, for the error text.

    Raises:
        ValueError: it is no such size.
    """
    nbytes: Any = value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", value, re.IGNORECASE)
        nbytes = None if match is None else int(min(float(match[1]) * _UNITS[match[2].upper()], sys.maxsize))
    if not isinstance(nbytes, (int, np.integer)) or isinstance(nbytes, bool) or nbytes < least:
        right = f'pass at least {least:,} bytes, as an int or as text such as "256MB"{instead}'
        raise bad_argument(name, value, right)
    return min(int(nbytes), sys.maxsize)  # no machine has more
