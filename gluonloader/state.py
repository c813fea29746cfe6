"""A position as JSON. Saving a position adds a checksum, and loading a position checks each field.

{"version": 1, ... fields that identify the loader ..., ... its position ..., "check": a hash of all other fields}
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .errors import bad_state

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
    """Returns a state: these fields, the version and the checksum."""
    state = {"version": _VERSION, **fields}
    return {**state, "check": _hash(state)}


def parse_state(state: Any) -> dict[str, Any]:
    """Returns the fields of a state, which may be JSON text; raises ValueError if it is not a state of this version.

    Call `verify_checksum` after the fields are checked.
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
        raise ValueError(f"state: it is a {type(state).__name__}; pass what state_dict() returned, or its JSON text")
    version = field(state, "version")
    if version != _VERSION:
        raise bad_state("version", version, f"this release of gluonloader loads only version {_VERSION}")
    return dict(state)


def verify_checksum(state: Mapping[str, Any]) -> None:
    """Raises ValueError if a field was changed. Call it last: the checks of single fields raise clearer errors."""
    check = field(state, "check")
    try:
        right = _hash({key: value for key, value in state.items() if key != "check"})
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"state: JSON cannot store it ({error}); pass what state_dict() returned") from None
    if check != right:
        raise bad_state("check", check, "does not match the other fields: the state was changed after it was saved")


def field(state: Any, name: str, path: str = "") -> Any:
    """Returns a required field; `path` is the prefix of its name if `state` is part of a larger state."""
    if not isinstance(state, Mapping):
        raise bad_state(path.rstrip("."), state, "must be a dict")
    if name not in state:
        raise ValueError(f"state: {path}{name} is missing: the state is incomplete, or another kind of loader saved it")
    return state[name]


def int_field(state: Any, name: str, least: int | None = 0, path: str = "") -> int:
    """Returns a field that must be an int, and at least `least` if that is given."""
    value = field(state, name, path)
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise bad_state(path + name, value, "must be an int" if least is None else f"must be an int >= {least}")
    return value


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Returns ascending ints as [start, stop] pairs, one for each run of consecutive numbers.

    >>> to_ranges([3, 4, 5, 9])
    [[3, 6], [9, 10]]
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] = number + 1
        else:
            ranges.append([number, number + 1])
    return ranges


def ranges_field(state: Any, name: str) -> list[range]:
    """Reads a field that `to_ranges` wrote, and returns its ranges."""
    values, ranges, end = field(state, name), [], 0
    for pair in values if isinstance(values, list) else [None]:
        if not isinstance(pair, list) or [type(part) for part in pair] != [int, int] or not end <= pair[0] < pair[1]:
            raise bad_state(name, values, "must be a list of [start, stop] pairs of ascending ints")
        ranges.append(range(*pair))
        end = pair[1]
    return ranges


def check_same(state: Any, name: str, ours: object, owner: str, path: str = "") -> None:
    """Checks that a field is equal to the value `ours` of the `owner` that loads the state, e.g. "the loader here"."""
    value = field(state, name, path)
    if value != ours or type(value) is not type(ours):
        raise bad_state(path + name, value, f"{owner} has {name}={ours!r}; it must be the same as in the state")


def _hash(state: Mapping[str, Any]) -> str:
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
