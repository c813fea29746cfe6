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
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..errors import bad_state
from .find import named, owner

_PREFIX: Final = "gluonloader."
_KINDS: Final = "biufcSUmM"  # of dtypes whose bytes and name are all that there is to store
_OTHER_KEYS: Final = {"array": frozenset({"dtype", "shape", "base64"})}  # of the dict for each kind of value
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
        MissingExtraError: it contains arrays of a framework that is not installed.
    """
    try:
        return _restored(saved)
    except RecursionError:
        raise ValueError("state: it is nested too deeply; pass what state_dict() returned") from None


def _restored(saved: Any) -> Any:
    if isinstance(saved, list):
        return [_restored(item) for item in saved]
    if not isinstance(saved, Mapping):
        return saved
    tag = next((key for key in saved if str(key).startswith(_PREFIX)), None)
    if tag is None:
        return {key: _restored(value) for key, value in saved.items()}
    try:
        return _decode(saved, saved[tag], tag.removeprefix(_PREFIX))
    except RecursionError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
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
        what = "that is nested, sparse or quantized, has a gradient or is on a device"
        raise TypeError(f"an array of {framework} {what}")
    if values.dtype.kind not in _KINDS:
        raise TypeError(f"an array of dtype {values.dtype}")
    data = base64.b64encode(values.tobytes()).decode()
    return {f"{_PREFIX}array": framework, "dtype": values.dtype.str, "shape": list(values.shape), "base64": data}


def _decode(saved: Mapping[str, Any], content: Any, kind: str) -> Any:
    if saved.keys() - _OTHER_KEYS.get(kind, frozenset()) != {f"{_PREFIX}{kind}"}:
        raise ValueError(f"{kind} has other keys than it was saved with")
    if kind in ("tuple", "dict") and not isinstance(content, list):
        raise ValueError(f"{kind} must contain a list")
    if kind == "tuple":
        return tuple(map(_restored, content))
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("dict must contain pairs of a key and a value")
        return {_restored(key): _restored(item) for key, item in content}
    if kind == "bytes":
        return base64.b64decode(content, validate=True)
    if kind != "array" or content not in ("scalar", *_FRAMEWORKS):
        raise ValueError(f"{kind}={content!r} is unknown")
    name, shape, data = saved["dtype"], saved["shape"], base64.b64decode(saved["base64"], validate=True)
    if not isinstance(name, str) or (dtype := np.dtype(name)).kind not in _KINDS:
        raise ValueError(f"arrays of dtype {name} are not saved")
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("shape must be a list of ints >= 0")
    if math.prod(shape) * dtype.itemsize != len(data) or (not data and math.prod(shape)):
        raise ValueError(f"{len(data)} bytes are not an array of shape {shape} and dtype {dtype}")
    values = np.ndarray(tuple(shape), dtype, data).copy()
    if content in ("scalar", "numpy"):
        return values[()] if content == "scalar" else values
    return named(content).from_numpy(values)
