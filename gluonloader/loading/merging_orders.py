"""`merge_states` for datasets with `__getitem__`: ranks that have delivered equally much of one order share a position.

The order is divided from the start of the pass, or from where the last position was loaded. So if all ranks have
delivered the same number of batches, these are the first keys of the order, and the state of rank 0 says how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import bad_state
from ..state import add_checksum, check_same, field, int_field, list_field
from .plan.new_ranks import batch_size_in, length_in, saved_share, start_of_rest

State = Mapping[str, Any]

_SHARED: Final = ("length", "seed", "epoch", "batch")
_TOGETHER: Final = "save the states of all ranks after the same number of batches, with in_order=True"


def merge_orders(states: Sequence[State]) -> dict[str, Any]:
    """The state for any number of ranks.

    Raises:
        ValueError: a state is missing, comes twice, or does not fit the other states.
    """
    by_rank: dict[int, State] = {}
    for state in states:
        share = _share(state)
        rank = int_field(share, "index", path="sampler.")
        if by_rank.setdefault(rank, state) is not state:
            raise ValueError(f"states: rank {rank} comes twice; pass one state for each rank")
        check_same(share, "num_shards", _share(states[0]).get("num_shards"), "another rank", "sampler.")
    count = int_field(_share(states[0]), "num_shards", 1, "sampler.")
    if missing := [rank for rank in range(min(count, len(by_rank) + 10)) if rank not in by_rank]:
        raise ValueError(f"states: those of ranks {missing} are missing; pass the states of all {count} ranks")
    first, others = by_rank[0], [by_rank[rank] for rank in range(1, count)]
    for rank, state in enumerate(others, 1):
        if state.get("ahead") or first.get("ahead"):
            raise bad_state("ahead", state.get("ahead") or first["ahead"], f"batches came out of order; {_TOGETHER}")
        if not _has_finished(state, rank, first):
            _check_fits(state, rank, first)
    merged = _without_carried(first, [state for state in others if state["epoch"] == first["epoch"]])
    if "errors" in first:
        epoch = first["epoch"]
        merged["errors"] = sum(int_field(state, "errors") for state in by_rank.values() if state["epoch"] == epoch)
    return add_checksum(merged)


def _share(state: State) -> State:
    saved = field(state, "sampler")
    share = saved_share(saved) if isinstance(saved, Mapping) else None
    if share is not None:
        return share
    right = "it was saved by a loader without `ranks`; load it without merge_states"
    raise ValueError(f"states: one of them is not the state of a rank: {right}")


def _check_fits(state: State, rank: int, first: State) -> None:
    """Checks that a rank and rank 0 are at the same position of the same order."""
    different = next((name for name in _SHARED if field(state, name) != field(first, name)), None)
    if different is None and start_of_rest(state) != start_of_rest(first):
        different = "skip"
    if different is not None:
        right = f"rank {rank} has another {different} than rank 0, which has {different}={first[different]!r}"
        raise bad_state(different, state[different], f"{right}; {_TOGETHER}")
    if _order_of(state) != _order_of(first):
        raise ValueError(f"states: rank {rank} and rank 0 divide different orders; pass the states of one run")


def _order_of(state: State) -> State:
    """The pass state without what belongs to one rank, and without the place where the rest of the order starts."""
    share = {name: value for name, value in _share(state).items() if name not in ("index", "start")}
    return share if state["sampler"] is _share(state) else {**state["sampler"], "carried": [], "sampler": share}


def _has_finished(state: State, rank: int, first: State) -> bool:
    """Whether a rank has delivered its last batch of the epoch, while rank 0, which has one more, has not."""
    share = _share(first)
    start, length = int_field(share, "start", path="sampler."), length_in(share)
    batches = 0  # of an order without a length, a rank at the start of the next epoch has delivered all
    if length is not None:
        keys, size = len(range(start + rank, length, int(share["num_shards"]))), batch_size_in(first)
        keeps = first["sampler"].get("last_batch", "keep") == "keep"
        batches = -(-keys // size) if keeps else keys // size
    is_at_start = int_field(state, "epoch") == int_field(first, "epoch") + 1 and int_field(state, "batch") == 0
    # What a rank has carried over into the epoch is not known any more once it has finished the epoch.
    is_known = first["sampler"].get("last_batch") != "rollover" or first["epoch"] == 0
    return bool(is_at_start and is_known and batches <= int_field(first, "skip"))


def _without_carried(first: State, others: Sequence[State]) -> dict[str, Any]:
    """The state of rank 0, in which no rank still needs the samples that the epoch before has carried over."""
    saved, drawn = first["sampler"], int_field(first, "skip")
    if saved is _share(first):
        return dict(first)
    carried = [len(list_field(state["sampler"], "carried")) for state in (first, *others)]
    if not any(carried):
        return dict(first)
    if not drawn or len(set(carried)) > 1:
        right = "each rank still has samples of its own, carried over from the epoch before; "
        right += "save after the first batch of an epoch, or load into each rank its own state"
        raise bad_state("sampler.carried", saved["carried"], right)
    share = {**_share(first), "start": start_of_rest(first)}
    return {**first, "skip": 0, "sampler": {**saved, "carried": [], "sampler": share}}
