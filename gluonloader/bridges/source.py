"""The source of a bridge: how an epoch starts, how batches are converted, and the source's state as JSON."""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .. import frameworks
from ..errors import bad_argument, bad_state
from ..messages import message
from ..state import has_state


@message(frozen=True, slots=True)
class OpenedSource:
    """An epoch of a source that has started."""

    batches: Iterator[Any]
    stateful: Any  # the source or its iterator, whichever has `state_dict`; None if neither has
    lasts: bool  # whether `stateful` is used again in the next epoch


class BridgeSource:
    """The source that was given to `bridge`."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._is_function = isinstance(source, type) or not hasattr(source, "__iter__")
        self._make = _maker(source) if self._is_function else lambda epoch: source
        self._last: Callable[[], Any] = lambda: None  # returns what was read in the last epoch, if it still exists
        self._epoch = 0  # the last epoch
        self.name = _name(source)

    def length(self) -> int | None:
        """Number of batches in an epoch, against which a position is checked.

        None if it is unknown, or if the source saves its own state: its length may then depend on that state.
        """
        try:
            return None if has_state(self._source) else len(self._source)
        except (TypeError, NotImplementedError):
            return None

    def open(self, epoch: int, state: Any) -> OpenedSource:
        """Starts an epoch at `state`, which `state_of` returned; None is the first batch."""
        made = self._make(epoch)
        for part in (made, getattr(made, "sampler", None)):
            if part is not None and hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        loads_first = state is not None and has_state(made)
        if loads_first:
            made.load_state_dict(frameworks.state_from_json(state))
        has_reset = hasattr(made, "reset") and hasattr(made, "__next__")
        if has_reset:
            for _ in range(self._resets(made, epoch)):
                made.reset()
        has_ended = loads_first and hasattr(made, "set_epoch") and _starts_epoch(epoch + 1, state)
        batches = iter(()) if has_ended else iter(made)
        if batches is made and not has_reset and self._last() is made:
            raise RuntimeError(f"a {_name(made)} can be read only once; pass bridge() a function that makes it")
        self._last, self._epoch = self._reference(made), epoch
        stateful = next((part for part in (made, batches) if has_state(part)), None)
        if state is not None and not loads_first:
            if stateful is None:
                right = f"a {_name(made)} has no load_state_dict; pass a source of the type that was saved"
                raise bad_state("source", state, right)
            stateful.load_state_dict(frameworks.state_from_json(state))
        return OpenedSource(batches, stateful, stateful is self._source)

    def _resets(self, made: Any, epoch: int) -> int:
        """How many resets start this epoch; the order of some sources depends on the number of resets."""
        if self._last() is made:
            return max(1, epoch - self._epoch)
        return 0 if self._is_function else epoch

    def _reference(self, made: Any) -> Callable[[], Any]:
        """A reference to an object that was read; weak if a function made the object, which may use much memory."""
        if not self._is_function:
            return lambda: made
        try:
            return weakref.ref(made)
        except TypeError:
            return lambda: None


def _starts_epoch(epoch: int, state: Any) -> bool:
    """Whether a state is that of a `DataLoader` at the start of an epoch, where it is after the last batch before."""
    return isinstance(state, dict) and (state.get("epoch"), state.get("batch")) == (epoch, 0)


def _maker(source: Any) -> Callable[[int], Any]:
    """Returns a function of the epoch's number that calls the function `source`, with or without that number."""
    right = "pass an iterable, or a function that returns one; its only argument, if any, is the number of the epoch"
    if not callable(source):
        raise bad_argument("source", source, right)
    try:
        signature = inspect.signature(source)
    except ValueError:  # some functions in C have no signature
        return lambda epoch: source()
    for maker, arguments in ((lambda epoch: source()), ()), (source, (0,)):
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return maker
    raise bad_argument("source", source, right)


def _name(source: Any) -> str:
    return getattr(source, "__qualname__", None) or type(source).__qualname__


def convert(batch: Any, finish: Callable[[Any], Any] | None, unpack: bool) -> Any:
    """A batch after `finish` has converted its arrays; with `unpack`, an MXNet DataBatch becomes a tuple of arrays."""
    finish = finish or (lambda arrays: arrays)
    data_batch = getattr(sys.modules.get("mxnet.io"), "DataBatch", None)
    if data_batch is None or not isinstance(batch, data_batch):
        return finish(batch)
    # Copied, since MXNet's readers write into the arrays of batches that they returned before.
    parts = [
        [array.copy() if hasattr(array, "copy") else array for array in part or ()]
        for part in (batch.data, batch.label)
    ]
    data, label = map(finish, parts)
    if unpack:
        return (*data, *label)
    new = copy.copy(batch)
    new.data, new.label = data, label if batch.label is not None else None
    return new


# -- the source's state ------------------------------------------------------------------------------------------------


def state_of(stateful: Any) -> Any:
    """The state of a source as JSON; if saving fails, the exception, which `state_dict` raises later."""
    if stateful is None:
        return None
    try:
        return frameworks.state_to_json(type(stateful).__name__, stateful.state_dict())
    except Exception as error:
        return error
