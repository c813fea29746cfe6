"""A position as JSON. Saving a position adds a checksum; loading it compares the checksum, then checks each field.

{"version": 1, ... fields that identify the loader ..., ... its position ..., "check": a hash of all other fields}

A state may come from an unknown source, and anybody can compute a checksum. So each field is checked before anything
changes, before code of the user is called, and without work or memory in proportion to a number in the state.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from .checks import SEEDS
from .errors import a_class, bad_state

State = Mapping[str, Any]

MOST: Final = 2**62  # the largest number of an epoch, a batch or a shard; sums of a few of them fit in 64 bits
_VERSION: Final = 1


def has_state(thing: Any) -> bool:
    """Whether the object can save and load its state; the method names are those of torch and torchdata."""
    return saves_state(thing) and loads_state(thing)


def saves_state(thing: Any) -> bool:
    """Whether the object has a method `state_dict` that can be called without arguments."""
    return _accepts(getattr(thing, "state_dict", None), 0)


def loads_state(thing: Any) -> bool:
    """Whether the object has a method `load_state_dict` that can be called with a state alone."""
    return _accepts(getattr(thing, "load_state_dict", None), 1)


def _accepts(method: Any, count: int) -> bool:
    """Whether it can be called with `count` arguments; if it needs more, it is for another library to call."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # the signature is unknown, as of some methods that are written in C
        pass
    return True


def add_checksum(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a state: these fields, the version and the checksum, which replaces that of `fields`."""
    state = {"version": _VERSION, **{name: value for name, value in fields.items() if name != "check"}}
    return {**state, "check": hash_of(state)}


def parse_state(state: Any) -> dict[str, Any]:
    """Returns the fields of a state, which may be JSON text.

    Raises:
        ValueError: it is not a state of this version, or it was changed after it was saved.
    """
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except RecursionError:
            raise ValueError("state: the JSON is nested too deeply; pass all that state_dict() returned") from None
        except ValueError as error:
            right = "pass all that state_dict() returned; if it is in a file, pass the text of the file, not the path"
            raise ValueError(f"state: the text is not complete JSON ({error}); {right}") from None
    if not isinstance(state, Mapping):
        raise ValueError(f"state: it is {a_class(state)}; pass what state_dict() returned, or its JSON text")
    if "check" not in state and (names := [name for name, value in state.items() if _is_state(value)]):
        held = " and ".join(map(repr, names))
        raise ValueError(f"state: this dict holds the loader's state under {held}; pass state[{names[0]!r}]")
    version = field(state, "version")
    if version != _VERSION:
        raise bad_state("version", version, f"this release of gluonloader loads only version {_VERSION}")
    check = field(state, "check")
    try:
        right = hash_of({key: value for key, value in state.items() if key != "check"})
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"state: JSON cannot store it ({error}); pass what state_dict() returned") from None
    if check != right:
        raise bad_state("check", check, "does not match the other fields: the state was changed after it was saved")
    return dict(state)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and "version" in value and "check" in value


def field(state: Any, name: str, path: str = "") -> Any:
    """Returns a required field; `path` is the prefix of its name if `state` is part of a larger state."""
    if not isinstance(state, Mapping):
        raise bad_state(path.rstrip("."), state, "must be a dict")
    if name not in state:
        raise ValueError(f"state: {path}{name} is missing: the state is incomplete, or another kind of loader saved it")
    return state[name]


def int_field(state: Any, name: str, least: int | None = 0, path: str = "") -> int:
    """Returns a field that must be an int from `least` to `MOST`; None allows any int."""
    value = field(state, name, path)
    if type(value) is not int or (least is not None and not least <= value <= MOST):
        right = "must be an int" if least is None else f"must be an int >= {least}, and at most 2**62"
        raise bad_state(path + name, value, right)
    return value


def seed_field(state: Any, path: str = "") -> int:
    """Returns the field `seed`."""
    seed = int_field(state, "seed", None, path)
    if seed not in SEEDS:
        raise bad_state(f"{path}seed", seed, "must be an int from -2**63 to 2**64 - 1")
    return seed


def list_field(state: Any, name: str) -> list[Any]:
    """Returns a field that must be a list."""
    value = field(state, name)
    if not isinstance(value, list):
        raise bad_state(name, value, "must be a list")
    return value


def to_ranges(numbers: Iterable[int]) -> list[range]:
    """Returns ascending ints as ranges, one for each run of consecutive numbers.

    >>> to_ranges([3, 4, 5, 9])
    [range(3, 6), range(9, 10)]
    """
    return joined(range(number, number + 1) for number in numbers)


def joined(ranges: Iterable[range]) -> list[range]:
    """Returns ascending ranges, with those joined between which no number is missing."""
    result: list[range] = []
    for numbers in ranges:
        if result and result[-1].stop == numbers.start:
            result[-1] = range(result[-1].start, numbers.stop)
        else:
            result.append(numbers)
    return result


def range_with(ranges: Sequence[range], number: int) -> range | None:
    """Returns the one of ascending ranges that contains a number; None if none does."""
    index = bisect_right(ranges, number, key=attrgetter("start")) - 1
    return ranges[index] if index >= 0 and number in ranges[index] else None


def save_ranges(ranges: Iterable[range]) -> list[list[int]]:
    """Returns ranges as JSON: [start, stop] pairs."""
    return [[numbers.start, numbers.stop] for numbers in ranges]


def ranges_field(state: Any, name: str) -> list[range]:
    """Reads a field that `save_ranges` wrote, and returns its ranges, which ascend."""
    values, end = field(state, name), 0
    ranges: list[range] = []
    for pair in values if isinstance(values, list) else [None]:
        if (
            not isinstance(pair, list)
            or [type(part) for part in pair] != [int, int]
            or not end <= pair[0] < pair[1] <= MOST
        ):
            raise bad_state(name, values, "must be a list of [start, stop] pairs of ascending ints, at most 2**62")
        ranges.append(range(*pair))
        end = pair[1]
    return ranges


def check_same(state: Any, name: str, ours: object, owner: str, path: str = "", cure: str = "") -> None:
    """Checks that a field is equal to the value `ours` of the `owner` that loads the state, e.g. "the loader here"."""
    value = field(state, name, path)
    if value != ours or type(value) is not type(ours):
        right = f"{owner} has {name}={ours!r}; it must be the same as in the state{cure and ': '}{cure}"
        raise bad_state(path + name, value, right)


def hash_of(value: object, digest_size: int = 8) -> str:
    """A hash of what JSON can store, with two hexadecimal digits for each of `digest_size` bytes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=digest_size).hexdigest()
