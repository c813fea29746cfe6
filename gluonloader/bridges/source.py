"""The source of a bridge: how an epoch of it begins, what is done to its batches, and its own state as JSON."""

from __future__ import annotations

import base64
import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import frameworks
from ..errors import bad_argument, bad_state
from ..state import has_state, to_json

__all__ = ["Convert", "Opened", "Source", "state_of"]

_ARRAY: Final = "gluonloader.array"


@dataclass(frozen=True, slots=True)
class Opened:
    """An epoch of a source that has begun.

    Attributes:
        batches: its iterator.
        stateful: who has a state of its own, the source or its iterator; None if neither.
        lasts: `stateful` serves the next epoch, too.
    """

    batches: Iterator[Any]
    stateful: Any
    lasts: bool


class Source:
    """Whatever was given to `bridge`.

    Raises:
        ValueError: it can be neither iterated nor called.
    """

    def __init__(self, source: Any) -> None:
        self._source, self._make = source, _maker(source)
        self._is_function = not _is_iterable(source)
        self._last: Callable[[], Any] = lambda: None  # what was read in the epoch before, if it is still there
        self._epoch = 0  # of it
        self.name = _name(source)

    def length(self) -> int | None:
        """Batches of an epoch, as far as a position can be checked by it.

        None where it is unknown, and where it may depend on where the source stands, which checks its own state.
        """
        try:
            return None if has_state(self._source) else len(self._source)
        except (TypeError, NotImplementedError):
            return None

    def open(self, epoch: int, state: Any) -> Opened:
        """Begins an epoch, where `state` says, if it is not None: a state that `state_of` gave."""
        made = self._make(epoch)
        for one in (made, getattr(made, "sampler", None)):
            if one is not None and hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
        loads_first = state is not None and has_state(made)
        if loads_first:
            made.load_state_dict(_with_arrays(state))
        resets = hasattr(made, "reset") and hasattr(made, "__next__")
        if resets:
            for _ in range(self._resets(made, epoch)):
                made.reset()
        batches = iter(made)
        if batches is made and not resets and self._last() is made:
            raise RuntimeError(f"a {_name(made)} can be read only once; give bridge the function that makes it")
        self._last, self._epoch = self._reference(made), epoch
        stateful = next((one for one in (made, batches) if has_state(one)), None)
        if state is not None and not loads_first:
            if stateful is None:
                raise bad_state("source", state, f"a {_name(made)} has no load_state_dict; give what it was saved of")
            stateful.load_state_dict(_with_arrays(state))
        return Opened(batches, stateful, stateful is self._source)

    def _resets(self, made: Any, epoch: int) -> int:
        """How often a reset brings it to its epoch: the order of some depends on how often that was done."""
        if self._last() is made:
            return max(1, epoch - self._epoch)
        return 0 if self._is_function else epoch

    def _reference(self, made: Any) -> Callable[[], Any]:
        """To what a function made, not stronger than needed: it may hold much."""
        if not self._is_function:
            return lambda: made
        try:
            return weakref.ref(made)
        except TypeError:
            return lambda: None


def _is_iterable(source: Any) -> bool:
    return hasattr(source, "__iter__") and not isinstance(source, type)


def _maker(source: Any) -> Callable[[int], Any]:
    """What gives the source of an epoch, by its number."""
    if _is_iterable(source):
        return lambda epoch: source
    right = "give something that can be iterated, or a function that makes it, with no argument or the epoch's number"
    if not callable(source):
        raise bad_argument("source", source, right)
    try:
        signature = inspect.signature(source)
    except ValueError:  # one that is written in C
        return lambda epoch: source()
    if _takes(signature):
        return lambda epoch: source()
    if _takes(signature, 0):
        return lambda epoch: source(epoch)
    raise bad_argument("source", source, right)


def _takes(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _name(source: Any) -> str:
    return getattr(source, "__qualname__", None) or type(source).__qualname__


class Convert:
    """What is done to a batch.

    Args:
        finish: what is done to its arrays, or None.
        unpack: an MXNet DataBatch becomes a tuple of its arrays.
    """

    def __init__(self, finish: Callable[[Any], Any] | None, unpack: bool) -> None:
        self._finish, self._unpack = finish, unpack

    def __call__(self, batch: Any) -> Any:
        data_batch = getattr(sys.modules.get("mxnet.io"), "DataBatch", None)
        if data_batch is None or not isinstance(batch, data_batch):
            return batch if self._finish is None else self._finish(batch)
        # MXNet's readers write into the arrays of some batches ago.
        data, label = ([_copied(array) for array in arrays or ()] for arrays in (batch.data, batch.label))
        if self._finish is not None:
            data, label = self._finish(data), self._finish(label)
        if self._unpack:
            return (*data, *label)
        new = copy.copy(batch)
        new.data, new.label = data, label if batch.label is not None else None
        return new


def _copied(array: Any) -> Any:
    return array.copy() if hasattr(array, "copy") else array


# -- the source's own state --------------------------------------------------------------------------------------------


def state_of(stateful: Any) -> Any:
    """Its state as JSON; None for None; the exception, for who asks, where it cannot be had."""
    if stateful is None:
        return None
    try:
        return to_json(type(stateful).__name__, frameworks.map_arrays(_as_json, stateful.state_dict()))
    except Exception as error:
        return error


def _as_json(array: Any) -> Any:
    """An array in a state, as a rule a generator's; it has to come back as what it was."""
    framework = frameworks.owner(type(array))
    values = array if framework is None else framework.to_numpy(array)
    if values is None or values.dtype.kind not in "biufc":
        return array
    return {
        _ARRAY: framework.name if framework else "numpy",
        "dtype": values.dtype.str,
        "shape": values.shape,
        "base64": base64.b64encode(values.tobytes()).decode(),
    }


def _with_arrays(state: Any) -> Any:
    """A state that was JSON, its arrays as they were."""
    if isinstance(state, list):
        return [_with_arrays(item) for item in state]
    if not isinstance(state, Mapping):
        return state
    if _ARRAY not in state:
        return {key: _with_arrays(item) for key, item in state.items()}
    values = np.frombuffer(base64.b64decode(state["base64"]), state["dtype"]).reshape(state["shape"]).copy()
    return frameworks.named(state[_ARRAY]).from_numpy(values)
