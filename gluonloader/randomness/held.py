"""Random generators that a dataset holds, in its attributes and those of its transforms: finds them, and seeds them.

NOTE [held generators]: promise P1 for a dataset with `self.rng = np.random.default_rng()`, or with a pipeline that has
such an attribute. Each worker process has a copy of the generator, so without new seeds the augmentation would repeat
in each worker, and would depend on which worker makes a batch. Before each batch, every held generator gets a seed of
its own: a hash of the batch's seed and of its place in the search. The search visits the same objects in the same order
in each process, since it happens once, before a worker reads its first sample. It reads attributes and items, and calls
no user code.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from ..messages import message
from .seeds import batch_seed
from .torch import seed_generator

_MOST_OBJECTS: Final = 10_000  # that a search visits; this takes 10 ms
_MOST_ITEMS: Final = 100  # of a list, a tuple or a dict; lists of a dataset's files and labels are much longer
_LEAVES: Final = frozenset({type(None), bool, int, float, complex, str, bytes, np.ndarray, np.dtype})
_BOUND: Final = (MethodType, BuiltinMethodType, type(np.random.RandomState().random))  # that of Cython


@message(frozen=True, slots=True)
class Held:
    """A generator that was found, with the functions that the modules of global generators have, too."""

    seed: Callable[[int], object]  # of 64 bits
    save: Callable[[], Any]
    restore: Callable[[Any], object]


def find_generators(*roots: Any) -> list[Held]:
    """Searches datasets and functions, and all that they refer to, for random generators; closest to the roots first.

    It follows attributes and slots, the first items of lists, tuples and dicts, and the parts of functions: closures,
    defaults, `partial` and bound methods. It follows neither global variables nor classes.
    """
    seen = {id(generator) for generator in _global_generators()}
    found: list[Held] = []
    queue = deque(roots)
    visits = _MOST_OBJECTS
    while queue and visits:
        value = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        visits -= 1
        generator = _held(value)
        if generator is not None:
            found.append(generator)
        else:
            parts = (part for part in _parts(value) if type(part) not in _LEAVES)
            queue.extend(islice(parts, max(0, visits - len(queue))))
    return found


def seed_also(held: Sequence[Held], seed_others: Callable[[int], None]) -> Callable[[int], None]:
    """Returns a function that seeds like `seed_others`, and seeds the held generators; see NOTE [held generators]."""
    if not held:
        return seed_others

    def seed(seed: int) -> None:
        seed_others(seed)
        for number, generator in enumerate(held):
            generator.seed(batch_seed(seed, number))

    return seed


def _held(value: Any) -> Held | None:
    """The handle of a generator; None for another object, and for a generator that cannot be seeded."""
    kind = type(value)
    if kind is np.random.Generator:
        bits = value.bit_generator
        make, restore = _bits_maker(type(bits).__name__), partial(setattr, bits, "state")
        return Held(lambda seed: restore(make(seed).state), lambda: bits.state, restore) if make is type(bits) else None
    if kind is np.random.RandomState:
        save = partial(value.get_state, legacy=False)
        make = _bits_maker(save()["bit_generator"])
        if make is np.random.MT19937:  # the usual one; `seed` takes 5 us
            return Held(lambda seed: value.seed(seed & 0xFFFF_FFFF), save, value.set_state)
        return Held(lambda seed: value.set_state(make(seed).state), save, value.set_state) if make else None
    if kind is random.Random:
        return Held(value.seed, value.getstate, value.setstate)
    if kind is getattr(sys.modules.get("torch"), "Generator", None) and value.device.type == "cpu":
        return Held(partial(seed_generator, value), value.get_state, value.set_state)
    if _is_of_albumentationsx(kind):
        return _of_albumentationsx(value)
    return None


def _is_of_albumentationsx(kind: type) -> bool:
    """Whether it is a pipeline or transform of AlbumentationsX, which has other generators for each thread.

    Those of Albumentations have their generators as plain attributes, which the search finds.
    """
    owner = next((base for base in kind.__mro__ if "random_generator" in vars(base)), None)
    return owner is not None and owner.__module__.startswith("albumentations.") and hasattr(owner, "set_random_seed")


def _of_albumentationsx(value: Any) -> Held:
    attributes = vars(value)  # `set_random_seed` replaces the generators among them
    return Held(lambda seed: value.set_random_seed(seed & 0xFFFF_FFFF), attributes.copy, attributes.update)


def _bits_maker(name: str) -> Any:
    """The class of a bit generator of NumPy; None for that of another library."""
    return getattr(np.random, name, None)


def _global_generators() -> list[Any]:
    """Generators that are seeded for each batch in any case."""
    numpy: Any = np.random.get_state
    python: Any = random.seed
    return [numpy.__self__, python.__self__, getattr(sys.modules.get("torch"), "default_generator", None)]


def _parts(value: Any) -> Iterator[Any]:
    """The objects that `value` refers to."""
    kind = type(value)
    if issubclass(kind, (type, ModuleType)):
        return
    if issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        yield from base.__getitem__(value, slice(_MOST_ITEMS))
    elif issubclass(kind, dict):
        yield from islice(list(dict.values(value)), _MOST_ITEMS)
    elif kind is partial:
        yield from (value.func, value.args, value.keywords)
    elif kind in _BOUND:
        yield from (value.__self__, getattr(value, "__func__", None))
    elif kind is FunctionType:
        yield from (value.__defaults__, value.__kwdefaults__)
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # it is empty
                yield cell.cell_contents
    yield from _attributes(value, kind)


def _attributes(value: Any, kind: type) -> Iterator[Any]:
    with suppress(Exception):  # it has none
        yield from list(object.__getattribute__(value, "__dict__").values())
    for base in kind.__mro__:
        for member in vars(base).values() if "__slots__" in vars(base) else ():
            if type(member) is MemberDescriptorType:
                with suppress(AttributeError):  # not set
                    yield member.__get__(value, kind)
