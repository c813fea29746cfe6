"""`merge_states` for datasets with `__getitem__`: ranks at the same offset share a position; see NOTE [offset]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..errors import bad_state
from ..state import State, add_checksum, check_same, field, int_field, list_field
from .cut import batches_of

_SHARED: Final = ("divides", "batch_size", "last_batch", "length", "seed", "epoch", "batch", "offset")
_TOGETHER: Final = "save the states of all ranks after the same number of batches, with in_order=True"
_ONE_SEED: Final = "pass the same seed=... on all ranks; from these states, load that of rank 0 on each rank"


def merge_orders(states: Sequence[State]) -> dict[str, Any]:
    """The state for any number of ranks; see NOTE [offset].

    Raises:
        ValueError: a state is missing, comes twice, or does not fit the other states.
    """
    by_rank: dict[int, State] = {}
    for state in states:
        field(state, "sampler")
        if int_field(state, "ranks", 1) == 1:
            right = "it was saved by a loader without `ranks`; load it without merge_states"
            raise ValueError(f"states: one of them is not the state of a rank: {right}")
        rank = int_field(state, "rank")
        if by_rank.setdefault(rank, state) is not state:
            raise ValueError(f"states: rank {rank} comes twice; pass one state for each rank")
        check_same(state, "ranks", states[0]["ranks"], "another rank")
    count = states[0]["ranks"]
    if missing := [rank for rank in range(min(count, len(by_rank) + 10)) if rank not in by_rank]:
        raise ValueError(f"states: those of ranks {missing} are missing; pass the states of all {count} ranks")
    first, others = by_rank[0], [by_rank[rank] for rank in range(1, count)]
    for rank, state in enumerate(others, 1):
        if state.get("ahead") or first.get("ahead"):
            raise bad_state("ahead", state.get("ahead") or first["ahead"], f"batches came out of order; {_TOGETHER}")
        if not _has_finished(state, rank, first):
            _check_fits(state, rank, first)
    here = [state for state in (first, *others) if state["epoch"] == first["epoch"]]
    if first["batch"] == 0 and any(list_field(state, "carried") for state in here):
        right = "each rank still has samples of its own, carried over from the epoch before; "
        right += "save after the first batch of an epoch, or load into each rank its own state"
        raise bad_state("carried", first["carried"], right)
    merged = {**first, "carried": []}
    if "errors" in first:
        merged["errors"] = sum(int_field(state, "errors") for state in here)
    return add_checksum(merged)


def _check_fits(state: State, rank: int, first: State) -> None:
    """Checks that a rank and rank 0 are at the same position of the same order."""
    for name in _SHARED:
        if field(state, name) != field(first, name):
            right = f"rank {rank} has another {name} than rank 0, which has {name}={first[name]!r}"
            raise bad_state(name, state[name], f"{right}; {_ONE_SEED if name == 'seed' else _TOGETHER}")
    if field(state, "sampler") != field(first, "sampler"):
        raise ValueError(f"states: rank {rank} and rank 0 divide different orders; pass the states of one run")


def _has_finished(state: State, rank: int, first: State) -> bool:
    """Whether a rank has delivered its last batch of the epoch, while rank 0, which has one more, has not.

    Raises:
        ValueError: it has, but rank 0 cannot continue for it.
    """
    saved, batches = field(first, "sampler"), 0
    if saved.get("length") is not None:  # without a length, a rank at the start of the next epoch has delivered all
        keys, ranks = int_field(saved, "length", path="sampler.") - int_field(first, "offset"), first["ranks"]
        kind = first["divides"], first["batch_size"], first["last_batch"]
        batches = batches_of(keys, 0, *kind, lambda count: len(range(rank, count, ranks)))
    is_at_start = int_field(state, "epoch") == int_field(first, "epoch") + 1 and int_field(state, "batch") == 0
    has_finished = bool(is_at_start and first["batch"] and not batches)
    if has_finished and first["last_batch"] == "rollover" and first["epoch"] > 0:
        right = f"rank {rank} has finished epoch {first['epoch']}, so what it had carried over into it is not known "
        right += "any more; with last_batch='rollover', save while no rank has finished, or after all ranks have"
        raise bad_state("epoch", state["epoch"], right)
    return has_finished
