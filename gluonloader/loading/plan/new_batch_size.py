"""A position that was saved with another batch size, as a position of the batch sampler that loads it.

    saved      epoch: 0 1 2 3 | 4 5 6 7 | 8 ...      `skip` batches of 4 were delivered
    mapped     epoch: 0 1 2 3   4 5 6 7 | 8 ...      the sampler's pass starts after their samples, with batches of 8

The number of the next batch stays, so that no two batches of an epoch have the same seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import bad_argument, bad_state
from ...sampler.base import BatchSampler, iterating_class
from ...sampler.saved import replicas_of
from ...sampler.sharded import ShardedSampler
from ...state import field, int_field
from .sampler_state import stateful_part

_PATH = "sampler."


def with_new_batch_size(batch_sampler: Any, state: Mapping[str, Any], allowed: bool) -> Mapping[str, Any]:
    """Returns the state for the batch size of this batch sampler; the same object if nothing has to change.

    Args:
        allowed: whether the number of samples in a batch of all ranks together may differ.

    Raises:
        ValueError: it differs and may not, or the delivered samples are not the first samples of the epoch.
    """
    if iterating_class(batch_sampler) is not BatchSampler:
        if allowed:
            right = (
                f"a {type(batch_sampler).__name__} chooses the samples of each batch itself, so batches of another "
                "size do not continue its order; remove new_batch_size, and pass the batch sampler that was saved"
            )
            raise bad_argument("new_batch_size", allowed, right)
        return state
    saved, ours = field(state, "sampler"), batch_sampler.batch_size
    size = saved.get("batch_size") if isinstance(saved, Mapping) else None
    if not isinstance(saved, Mapping) or size == ours or saved.get("kind") != type(batch_sampler).__name__:
        return state  # `load` checks it
    size, inner = int_field(saved, "batch_size", 1, _PATH), field(saved, "sampler", _PATH)
    shares = inner if isinstance(inner, Mapping) and inner.get("kind") == ShardedSampler.__name__ else {}
    ranks = int_field(shares, "num_shards", 1, _PATH) if shares else 1
    share = batch_sampler.sampler if isinstance(batch_sampler.sampler, ShardedSampler) else None
    our_ranks = 1 if share is None else share.num_shards
    if not allowed and size * ranks != ours * our_ranks:
        raise bad_state(_PATH + "batch_size", size, _refusal((size, ranks), (ours, our_ranks)))
    if state.get("ahead"):
        right = (
            f"these batches of {size} samples were delivered out of order, so other samples between them are due, "
            f"which batches of {ours} samples cannot leave out; load the state with batch_size={size}, or save with "
            "in_order=True"
        )
        raise bad_state("ahead", state["ahead"], right)
    drawn, carried = int_field(state, "skip"), field(saved, "carried", _PATH)
    _check_carried(carried, inner, share, 0 if drawn else ours)
    keys = max(drawn * size - len(carried), 0)  # that were drawn from the sampler's pass
    mapped = {name: value for name, value in saved.items() if name != "start"}
    mapped |= {"batch_size": ours, "carried": [] if drawn else carried}
    if shares:
        mapped["sampler"] = {**inner, "start": int_field(shares, "start", path=_PATH) + keys * ranks}
    elif stateful_part(batch_sampler) is None:
        _check_replicas(batch_sampler.sampler, inner)
        mapped["start"] = (int_field(saved, "start", path=_PATH) if "start" in saved else 0) + keys
    return {**state, "skip": 0, "sampler": mapped}


def _refusal(saved: tuple[int, int], ours: tuple[int, int]) -> str:
    """Why a state with another (batch size, number of ranks) is refused, and what to do."""
    cure = (
        "to continue at the same sample with batches of another size, call load_state_dict(state, new_batch_size=True)"
    )
    if saved[1] == ours[1] == 1:
        return f"this loader has batch_size={ours[0]}; it must be the same as in the state, or, {cure}"
    texts = [f"{ranks} x {size} = {ranks * size} samples" for size, ranks in (saved, ours)]
    return (
        f"all ranks together had batches of {texts[0]}, but here they have batches of {texts[1]}; pass a batch_size "
        f"for which they are the same, or, {cure}"
    )


def _check_carried(carried: Any, saved: Any, share: ShardedSampler | None, fits: int) -> None:
    """Checks the samples that the epoch before carried over.

    Args:
        saved: the pass state of the sampler.
        share: the sampler, if it is one of several shares.
        fits: the batch size, if the samples are still due.
    """
    if not isinstance(carried, list):
        raise bad_state(_PATH + "carried", carried, "must be a list of indices")
    if fits and len(carried) >= fits:
        right = (
            f"the epoch before carried over {len(carried)} samples, which do not fit into the first batch with "
            f"batch_size={fits}; pass a larger batch_size, or load a state from after the first batch of an epoch"
        )
        raise bad_state(_PATH + "carried", carried, right)
    if not carried or share is None or not isinstance(saved, Mapping):
        return
    theirs, ours = (saved.get("index"), saved.get("num_shards")), (share.index, share.num_shards)
    if theirs != ours:
        right = (
            f"share {theirs[0]} of {theirs[1]} started the epoch with these samples of its own, but this is share "
            f"{ours[0]} of {ours[1]}; load a state without carried indices"
        )
        raise bad_state(_PATH + "carried", carried, right)


def _check_replicas(sampler: Any, saved: Any) -> None:
    """Checks that a sampler such as torch's DistributedSampler still has as many ranks: it cannot share out a rest."""
    ranks = saved.get("num_replicas") if isinstance(saved, Mapping) else None
    ours = replicas_of(sampler)
    if ranks != ours:
        right = (
            f"this {type(sampler).__name__} has {ours}, and cannot distribute the rest of an epoch over another number "
            "of ranks; use a ShardedSampler"
        )
        raise bad_state(_PATH + "sampler.num_replicas", ranks, right)
