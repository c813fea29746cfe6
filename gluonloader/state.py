"""A position as JSON: sealed when it is saved, checked field by field when it is loaded.

{"version": 1, ... what the loader is ..., ... where it stands ..., "check": a hash of all the others}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .errors import bad_state

__all__ = [
    "check_whole",
    "field",
    "has_state",
    "int_field",
    "opened",
    "ranges_field",
    "same",
    "sealed",
    "to_json",
    "to_ranges",
]

_VERSION: Final = 1


def has_state(thing: Any) -> bool:
    """Whether it keeps a state of its own, as torch's and torchdata's conventions have it."""
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


def to_json(name: str, value: Any) -> Any:
    """The state that something of the user's gave, as JSON keeps it.

    Raises:
        TypeError: it is not JSON.
    """
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}.state_dict() gave something that JSON does not hold ({error}); "
            "let it give numbers, texts, lists and dicts only, no pickles"
        ) from None


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A state of these fields, with version and check."""
    state = {"version": _VERSION, **fields}
    return {**state, "check": _hash(state)}


def opened(state: Any) -> dict[str, Any]:
    """The fields of a state, or of its JSON text; what it says of itself is checked last, by `check_whole`.

    Raises:
        ValueError: it is no state, or one of another version.
    """
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except ValueError as error:
            raise ValueError(f"state: its text is not whole JSON ({error}); give what state_dict() returned") from None
    if not isinstance(state, Mapping):
        raise ValueError(f"state: a {type(state).__name__}; give what state_dict() returned, or its JSON text")
    version = field(state, "version")
    if version != _VERSION:
        raise bad_state("version", version, f"this gluonloader reads version {_VERSION}")
    return dict(state)


def check_whole(state: Mapping[str, Any]) -> None:
    """After all fields are known to be possible: that none was changed.

    Raises:
        ValueError: the state is not what was saved.
    """
    check = field(state, "check")
    if check != _hash({key: value for key, value in state.items() if key != "check"}):
        raise bad_state("check", check, "does not fit the other fields: the state was changed after it was saved")


def field(state: Any, name: str, path: str = "") -> Any:
    """A field that has to be there; `path` is where `state` lies in the whole."""
    if not isinstance(state, Mapping):
        raise bad_state(path.rstrip("."), state, "has to be a dict")
    if name not in state:
        raise ValueError(f"state: {path}{name} is missing: it was cut off, or saved by something else")
    return state[name]


def int_field(state: Any, name: str, least: int | None = 0, path: str = "") -> int:
    """A field that is an int, at least `least`."""
    value = field(state, name, path)
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise bad_state(path + name, value, "has to be an int" if least is None else f"has to be an int >= {least}")
    return value


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending ints as JSON, which stays short where they lie together: pairs of a first and the one past the last.

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
    """A field that `to_ranges` made."""
    values, ranges, end = field(state, name), [], 0
    for pair in values if isinstance(values, list) else [None]:
        if not isinstance(pair, list) or [type(part) for part in pair] != [int, int] or not end <= pair[0] < pair[1]:
            raise bad_state(name, values, "has to be a list of pairs of ints, ascending")
        ranges.append(range(*pair))
        end = pair[1]
    return ranges


def same(state: Any, name: str, ours: object, whose: str, path: str = "") -> None:
    """A field that has to be as it is in whatever the state is loaded into, which is called `whose`."""
    value = field(state, name, path)
    if value != ours or type(value) is not type(ours):
        raise bad_state(path + name, value, f"{whose} has {ours!r}; make it as it was when the state was saved")


def _hash(state: Mapping[str, Any]) -> str:
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
