"""The state of a user's object as JSON, from which it is restored as it was, with arrays, bytes, tuples and int keys.

JSON has no such values. Each of them is stored as a dict with a key that starts with "gluonloader.":

    array      {"gluonloader.array": framework, "dtype": ..., "shape": ..., "base64": its bytes}
    scalar     the same, of NumPy and with the framework "scalar"
    bytes      {"gluonloader.bytes": base64}
    tuple      {"gluonloader.tuple": [items]}
    dict       {"gluonloader.dict": [[key, value], ...]}, if it has other keys than texts, or such a key as these
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..errors import bad_state
from .find import named, owner

_PREFIX: Final = "gluonloader."
_KINDS: Final = "biufcSUmM"  # of dtypes whose bytes and name are all that there is to store
_FRAMEWORKS: Final = ("numpy", "torch", "jax", "mxnet.nd", "mxnet.np")


def state_to_json(name: str, state: Any) -> Any:
    """Returns the state of the user's object `name` as JSON values that share nothing with it.

    Raises:
        TypeError: the state contains something that could not be restored; the text names it.
    """
    try:
        return _encode(state)
    except (TypeError, RecursionError) as error:
        raise TypeError(
            f"{name}.state_dict() returned something that JSON cannot store ({error}); return only numbers, texts, "
            "bytes, arrays, lists, tuples and dicts"
        ) from None


def state_from_json(saved: Any) -> Any:
    """Returns the state that `state_to_json` has converted; it shares nothing with `saved`.

    Raises:
        ValueError: `saved` was edited.
    """
    if isinstance(saved, list):
        return [state_from_json(item) for item in saved]
    if not isinstance(saved, Mapping):
        return saved
    tag = next((key for key in saved if str(key).startswith(_PREFIX)), None)
    if tag is None:
        return {key: state_from_json(value) for key, value in saved.items()}
    try:
        return _decode(saved, saved[tag], tag.removeprefix(_PREFIX))
    except (KeyError, TypeError, ValueError) as error:
        raise bad_state(tag, saved, f"cannot be restored ({error}); pass what state_dict() returned") from None


def _encode(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        if all(type(key) is str and not key.startswith(_PREFIX) for key in value):
            return {key: _encode(item) for key, item in value.items()}
        return {f"{_PREFIX}dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {f"{_PREFIX}tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, np.generic):
        return _encode_array(np.asarray(value), "scalar")
    if type(value) is bytes:
        return {f"{_PREFIX}bytes": base64.b64encode(value).decode()}
    framework = owner(type(value))
    if type(value) is np.ndarray or framework is not None:
        values = value if framework is None else framework.to_numpy(value)
        return _encode_array(values, "numpy" if framework is None else framework.name)
    if isinstance(value, (str, int, float)):  # a member of an IntEnum, for example, becomes an int
        return json.loads(json.dumps(value))
    raise TypeError(f"an object of type {type(value).__name__}")


def _encode_array(values: Any, framework: str) -> dict[str, Any]:
    if values is None:
        raise TypeError(f"an array of {framework} that is nested, sparse, has a gradient or is on a device")
    if values.dtype.kind not in _KINDS:
        raise TypeError(f"an array of dtype {values.dtype}")
    data = base64.b64encode(values.tobytes()).decode()
    return {f"{_PREFIX}array": framework, "dtype": values.dtype.str, "shape": list(values.shape), "base64": data}


def _decode(saved: Mapping[str, Any], content: Any, kind: str) -> Any:
    if kind == "tuple":
        return tuple(map(state_from_json, content))
    if kind == "dict":
        return {state_from_json(key): state_from_json(item) for key, item in content}
    if kind == "bytes":
        return base64.b64decode(content)
    if kind != "array" or content not in ("scalar", *_FRAMEWORKS):
        raise ValueError(f"{kind}={content!r} is unknown")
    dtype, data = np.dtype(saved["dtype"]), base64.b64decode(saved["base64"])
    if dtype.kind not in _KINDS:
        raise ValueError(f"arrays of dtype {dtype} are not saved")
    values = np.ndarray(tuple(saved["shape"]), dtype, data).copy()
    if content in ("scalar", "numpy"):
        return values[()] if content == "scalar" else values
    return named(content).from_numpy(values)
