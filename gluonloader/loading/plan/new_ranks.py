"""A position that was saved with other ranks, for the ranks of this loader, or for a loader without `ranks`.

    with ranks       BatchSampler(ShardedSampler(order))    the share knows where the rest of the order starts
    without          BatchSampler(order)                    `start` of the batch sampler says it

The position of other ranks becomes one of this rank, so that it can be merged with those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import bad_state
from ...sampler.base import BatchSampler
from ...sampler.passes import length_of
from ...sampler.sharded import ShardedSampler
from ...state import field, int_field, list_field

_PATH = "sampler."
_SHARE = ShardedSampler.__name__


def with_share(batch_sampler: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the state for one of several ranks, if a loader without `ranks` has saved it; else the same object."""
    saved = field(state, "sampler")
    share = _share_of(batch_sampler)
    if share is None or not isinstance(saved, Mapping) or saved_share(saved) or "snapshot" in state:
        return state
    if share is batch_sampler:
        return {**state, "sampler": _as_share(share, 0, saved)}
    if saved.get("kind") != type(batch_sampler).__name__:
        return state  # `check` refuses it
    size, drawn = int_field(saved, "batch_size", 1, _PATH), int_field(state, "skip")
    carried = field(saved, "carried", _PATH)
    start = int_field(saved, "start", path=_PATH) if "start" in saved else 0
    if drawn and isinstance(carried, list) and len(carried) < size and not state.get("ahead"):
        # The first batch contained what the epoch before has carried over, so no rank still needs it.
        start, drawn, carried = start + drawn * size - len(carried), 0, []
    mapped = {name: value for name, value in saved.items() if name != "start"}
    inner = _as_share(share, start, field(saved, "sampler", _PATH))
    return {**state, "skip": drawn, "sampler": {**mapped, "carried": carried, "sampler": inner}}


def with_our_share(batch_sampler: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the state for this rank, if another rank has saved it; else the same object."""
    saved, share = field(state, "sampler"), _share_of(batch_sampler)
    inner = saved_share(saved) if isinstance(saved, Mapping) else None
    if share is None or inner is None or state.get("ahead"):
        return state
    ours = {"num_shards": share.num_shards, "index": share.index}
    if all(inner.get(name) == value for name, value in ours.items()):
        return state
    if inner is not saved and (saved.get("kind") != type(batch_sampler).__name__ or field(saved, "carried", _PATH)):
        return state  # `check` refuses it
    moved = {**inner, **ours, "start": start_of_rest(state)}
    return {**state, "skip": 0, "sampler": moved if inner is saved else {**saved, "sampler": moved}}


def start_of_rest(state: Mapping[str, Any]) -> int:
    """Where the rest of the order that ranks divide starts: before it, each rank has delivered as much as this one."""
    saved = state["sampler"]
    share = saved_share(saved)
    assert share is not None, "one of several ranks has saved it"
    ranks, length = int_field(share, "num_shards", 1, _PATH), length_in(share)
    carried = 0 if saved is share else len(list_field(saved, "carried"))
    keys = max(int_field(state, "skip") * batch_size_in(state) - carried, 0)
    start = int_field(share, "start", path=_PATH) + keys * ranks
    return start if length is None else min(start, length)


def batch_size_in(state: Mapping[str, Any]) -> int:
    """How many keys of the order a batch has: 1 if the keys are batches."""
    saved = state["sampler"]
    return 1 if saved is saved_share(saved) else int_field(saved, "batch_size", 1, _PATH)


def length_in(share: Mapping[str, Any]) -> int | None:
    """The length of the order that ranks divide; None if it is not known."""
    return None if field(share, "length", _PATH) is None else int_field(share, "length", path=_PATH)


def without_share(batch_sampler: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the state for a loader without `ranks`, if one of several ranks has saved it; else the same object.

    Raises:
        ValueError: the position cannot be continued without `ranks`.
    """
    saved = field(state, "sampler")
    inner = saved_share(saved) if isinstance(saved, Mapping) else None
    if inner is None or _share_of(batch_sampler) is not None:
        return state
    ranks = int_field(inner, "num_shards", 1, _PATH)
    right = f"one of {ranks} ranks has saved it; pass ranks=(0, 1) to continue in a single process"
    if inner is saved or not isinstance(batch_sampler, BatchSampler) or "snapshot" in inner or state.get("ahead"):
        raise bad_state(_PATH + "kind", saved.get("kind"), right)
    if field(saved, "carried", _PATH):
        raise bad_state(_PATH + "carried", saved["carried"], right)
    mapped = {**saved, "start": start_of_rest(state), "sampler": field(inner, "sampler", _PATH)}
    return {**state, "skip": 0, "sampler": mapped}


def _share_of(batch_sampler: Any) -> ShardedSampler | None:
    parts = batch_sampler, getattr(batch_sampler, "sampler", None)
    return next((part for part in parts if isinstance(part, ShardedSampler)), None)


def saved_share(saved: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The pass state of the share in the pass state of a batch sampler; None if there is no share."""
    parts = saved, saved.get("sampler")
    return next((part for part in parts if isinstance(part, Mapping) and part.get("kind") == _SHARE), None)


def _as_share(share: ShardedSampler, start: int, inner: Any) -> dict[str, Any]:
    """The pass state of the only rank, whose order has this pass state."""
    where = {"start": start, "num_shards": 1, "index": 0, "length": length_of(share.sampler)}
    return {"kind": _SHARE, **where, "sampler": inner}
