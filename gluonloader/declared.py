"""What datasets, transforms and batchify functions declare about themselves.

    gil_free                users declare that a class, object or function releases the GIL and may run in threads
    thread_safe             the same, except that it may hold the GIL, if Python has one
    slow_in_random_order    a dataset has this method if a random order may be slow; it returns the text of the error
    needed_blocks           a dataset that reads through a cache has this method; it returns the blocks of some samples
    _parts                  the library lists all datasets and functions that one of its objects calls; () if none
    _identity               of an object with `_parts`: what must be equal where a state is loaded, as JSON

A subclass that overrides how samples are read, or how the object is called, does not inherit a declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Final, TypeVar

import numpy as np

T = TypeVar("T")

IN_MEMORY: Final = (np.ndarray, np.memmap)  # not their subclasses, which may override __getitem__
_CHEAP_TO_INDEX: Final = (list, tuple, range)
_PLAIN: Final = (bool, int, float, str, bytes)
_LOOKS_AT: Final = 1000  # items of a list: a worker that looks at an item copies the memory around it
_CALLS: Final = ("__getitem__", "__getitems__", "__iter__", "__call__")


class _Declaration:
    """The value of `gil_free` or `thread_safe` of a function.

    `functools.wraps` copies it to the wrapper, which it does not apply to.
    """


def gil_free(part: T) -> T:
    """Declares that a dataset, transform or batchify function releases the GIL; `executor="auto"` then uses threads.

    The declaration promises three things:

    - It spends most of its time without the GIL, as do decoders, resizing, compression, file reads and NumPy on large
      arrays.
    - Several threads may run it at the same time.
    - If it draws random numbers, it draws them from `get_rng()`, since threads share all other generators.

    A loader with `executor="auto"` uses threads if its dataset, transforms and batchify_fn all declare this. The
    library's own datasets count as declared if everything that they contain is declared. A subclass that overrides
    `__getitem__` or `__call__` does not inherit the declaration.

    Args:
        part: a function, a class, or an object whose attributes can be set; `gil_free = True` in a class does the same.

    Returns:
        `part`.

    Raises:
        ValueError: the attributes of `part` cannot be set, e.g. because it is a builtin function.

    >>> @gil_free
    ... def decode(data: bytes) -> np.ndarray:
    ...     return np.frombuffer(data, np.uint8)
    """
    return _declare(part, "gil_free")


def thread_safe(part: T) -> T:
    """Declares that a dataset, transform or batchify function may run in threads, but holds the GIL.

    On a Python without a GIL, threads run Python code at the same time, without a copy of the dataset and without
    pickling. So a loader with `executor="auto"` uses threads there, if its dataset, transforms and batchify_fn all
    declare this or `gil_free`. With a GIL, it uses processes.

    The declaration makes the second and the third promise of `gil_free`: several threads may run the part at the same
    time, and it draws random numbers from `get_rng()` alone.

    Args:
        part: a function, a class, or an object whose attributes can be set; `thread_safe = True` in a class does the
            same.

    Returns:
        `part`.

    Raises:
        ValueError: the attributes of `part` cannot be set, e.g. because it is a builtin function.

    >>> @thread_safe
    ... def parse(line: str) -> int:
    ...     return sum(map(int, line.split()))
    """
    return _declare(part, "thread_safe")


def _declare(part: T, name: str) -> T:
    try:
        setattr(part, name, _Declaration())
    except (AttributeError, TypeError):
        raise ValueError(f"part={part!r:.80}: it accepts no attributes; decorate a function that calls it") from None
    return part


def calls_no_user_code(function: T) -> T:
    """Declares that a function of the library releases the GIL, draws no random numbers and calls no user code."""
    vars(function)["_parts"] = ()
    return function


def is_gil_free(part: Any) -> bool:
    """Whether the part, or everything that it calls, declares that it releases the GIL, or is cheap to index."""
    return _declares(part, "gil_free")


def is_thread_safe(part: Any) -> bool:
    """Whether the part, or everything that it calls, declares that it may run in threads, or is cheap to index."""
    return _declares(part, "gil_free", "thread_safe")


def _declares(part: Any, *names: str) -> bool:
    """Whether the part, or everything that it calls, has one of these declarations."""
    if is_array(part) or type(part) in _CHEAP_TO_INDEX:
        return True
    own = getattr(part, "__dict__", {})
    if not own.keys().isdisjoint(names):
        wrapped = own.get("__wrapped__")
        return any(own.get(name) and own[name] is not getattr(wrapped, name, None) for name in names)
    if not defining_namespace(type(part), *names, *_CALLS).keys().isdisjoint(names):
        return any(getattr(part, name, False) for name in names)
    parts = parts_of(part)
    return parts is not None and all(_declares(inner, *names) for inner in parts)


def is_array(data: Any) -> bool:
    """Whether it is an array of NumPy, or a tensor of torch: its elements are samples, and it runs no user code."""
    kind = type(data)
    return kind in IN_MEMORY or (kind.__module__ == "torch" and kind.__qualname__ == "Tensor")


def in_memory(data: Any) -> bool:
    """Whether the samples lie in memory, so that reading them one by one is as fast as a bulk read."""
    parts = parts_of(data)
    return is_array(data) or type(data) in _CHEAP_TO_INDEX or (bool(parts) and all(map(in_memory, parts or ())))


def draws(data: Any) -> bool:
    """Whether reading or calling `data`, or making a batch of what it contains, may draw random numbers.

    Unknown code may. Arrays do not, nor do lists of numbers, texts and arrays, or of tuples, lists and dicts of them.
    """
    if is_array(data):
        return bool(getattr(data.dtype, "hasobject", False))
    if type(data) in (list, tuple):
        return any(map(_draws_in_batch, one_of_each_type(data[:_LOOKS_AT])))
    parts = parts_of(data)
    return type(data) is not range and (parts is None or any(map(draws, parts)))


def one_of_each_type(items: Any) -> list[Any]:
    """The last item of each type."""
    return list(dict(zip(map(type, items), items, strict=True)).values())


def _draws_in_batch(sample: Any) -> bool:
    if type(sample) is dict:
        return any(map(_draws_in_batch, sample.values()))
    return not isinstance(sample, np.generic) and type(sample) not in _PLAIN and draws(sample)


def identities(*things: Any) -> list[dict[str, Any]]:
    """What must be equal, where a state is loaded, in datasets and functions of the library and in their parts."""
    found: list[dict[str, Any]] = []
    for thing in things:
        parts = parts_of(thing)
        if parts is not None and getattr(thing, "_identity", None) is not None:
            found.append({"kind": type(thing).__name__, **thing._identity})
        found += identities(*(parts or ()))
    return found


def slow_in_random_order(data: Any, indices: Any = None) -> str:
    """Says why `data` is slow to read in a random order, and what to do instead; "" if it is not slow, or not known.

    Args:
        indices: the indices that the order mixes, an array or range of ints; None for all.
    """
    if hasattr(type(data), "slow_in_random_order"):
        return str(data.slow_in_random_order(indices))
    return next(filter(None, [slow_in_random_order(part, indices) for part in parts_of(data) or ()]), "")


def needed_blocks(data: Any, indices: Any) -> list[Any]:
    """The blocks of caches (`stores.cache.Needed`) in which samples lie, as far as that is known.

    Args:
        indices: of the samples; what is no index of a sample is ignored.
    """
    if hasattr(type(data), "needed_blocks"):
        return list(data.needed_blocks(indices))
    return [needed for part in parts_of(data) or () for needed in needed_blocks(part, indices)]


def caches_of(data: Any) -> list[Any]:
    """The caches (`stores.cache.NodeCache`) through which samples are read, as far as that is known."""
    return list(dict.fromkeys(needed.cache for needed in needed_blocks(data, ())))


def is_async(data: Any) -> bool:
    """Whether samples are read by `async def` methods, whose results must be awaited; also inside of views of ours."""
    methods = (getattr(type(data), name, None) for name in ("__getitem__", "__getitems__"))
    return any(map(inspect.iscoroutinefunction, methods)) or any(map(is_async, parts_of(data) or ()))


def defining_namespace(kind: type, *names: str) -> Mapping[str, Any]:
    """Returns `vars` of the first class in the MRO that defines any of the names; empty if there is none."""
    return next((vars(base) for base in kind.__mro__ if not vars(base).keys().isdisjoint(names)), {})


def parts_of(part: Any) -> tuple[Any, ...] | None:
    """The datasets and functions that `part` calls; None if they are unknown."""
    own = getattr(part, "__dict__", {})
    if isinstance(part, FunctionType):
        return None if "__wrapped__" in own else own.get("_parts")
    known = "_parts" in defining_namespace(type(part), "_parts", *_CALLS) and own.keys().isdisjoint(_CALLS)
    return tuple(part._parts) if known else None
