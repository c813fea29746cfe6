"""How the state of any batch sampler is saved and restored.

Samplers are restored in one of three ways:

    ours       restore the state that the pass started with, then skip batches without drawing them
    stateful   call `load_state_dict`; the plan calls `state_dict` before each draw, since it draws ahead of delivery
    any other  restart from the beginning, then draw the delivered batches again without reading their samples
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...errors import bad_state, warn
from ...frameworks import state_from_json, state_to_json
from ...randomness import batch_seed
from ...sampler.base import BatchSampler, OrderedSampler
from ...sampler.copies import chain_of, is_computed, pass_length
from ...sampler.saved import check_saved_pass, knows_epoch, load_saved_pass, saved_pass
from ...sampler.sharded import ShardedSampler, rank_of
from ...state import field, has_state, int_field, ranges_field
from .base import Start
from .errors import count_in

_OURS: Final = (OrderedSampler, ShardedSampler, BatchSampler)


def fresh_state(batch_sampler: Any) -> dict[str, Any]:
    """The position before the next epoch, as fields of a state."""
    stateful = stateful_part(batch_sampler)
    fields: dict[str, Any] = {"batch": 0, "ahead": [], "skip": 0, "sampler": saved_pass(batch_sampler)}
    return fields if stateful is None else {**fields, "snapshot": snapshot(stateful)}


def keep(batch_sampler: Any) -> Callable[[], None]:
    """Saves the state of a batch sampler; returns a function that restores it."""
    samplers = chain_of(batch_sampler)
    ours = [(sampler, dict(vars(sampler))) for sampler in samplers if isinstance(sampler, _OURS)]
    users = [(sampler, saved_pass(sampler)) for sampler in samplers if not isinstance(sampler, _OURS)][:1]
    stateful = stateful_part(batch_sampler)
    for sampler in samplers:
        if stateful is None and isinstance(sampler, ShardedSampler):
            stateful = sampler.stateful
    state = None if stateful is None else snapshot(stateful)

    def restore_all() -> None:
        for sampler, attributes in ours:
            sampler.__dict__ = dict(attributes)
        for sampler, pass_state in users:
            load_saved_pass(sampler, pass_state, 0)
        if stateful is not None:
            restore(stateful, state)

    return restore_all


def check(batch_sampler: Any, state: Mapping[str, Any]) -> None:
    """Checks each field of a position.

    Raises:
        ValueError: the state does not fit this sampler.
    """
    number, drawn = int_field(state, "batch"), int_field(state, "skip")
    ahead, pass_state = ranges_field(state, "ahead"), field(state, "sampler")
    count_in(state)
    if drawn > number:
        raise bad_state("skip", drawn, f"must be at most batch={number}")
    if ahead and ahead[0].start <= number:
        raise bad_state("ahead", state["ahead"], f"must be greater than batch={number}")
    check_saved_pass(batch_sampler, pass_state)
    if is_computed(batch_sampler):  # otherwise the length may be wrong
        most = drawn + _skipped(batch_sampler, pass_state)
        if number > most:
            raise bad_state("batch", number, f"must be at most {most}, by skip={drawn} and the start of the sampler")
        count = pass_length(batch_sampler, pass_state)
        if count is not None and drawn > count:
            raise bad_state("skip", drawn, f"must be at most {count}, the number of batches of the sampler")
        if count is not None and ahead and ahead[-1].stop > number - drawn + count:
            raise bad_state(
                "ahead", state["ahead"], f"must be less than {number - drawn + count}, where the epoch ends"
            )
    for sampler in chain_of(batch_sampler)[:2] if ahead else ():
        if isinstance(sampler, ShardedSampler):
            _check_shard(sampler, state)
    if stateful_part(batch_sampler) is not None:
        state_from_json(field(state, "snapshot"))


def load(batch_sampler: Any, state: Mapping[str, Any]) -> Start:
    """Prepares a batch sampler for the position in `state`, which `check` has accepted.

    Returns where its next pass starts.
    """
    stateful, drawn = stateful_part(batch_sampler), state["skip"]
    skip = load_saved_pass(batch_sampler, state["sampler"], drawn)
    undivided = [part for part in chain_of(batch_sampler) if not isinstance(part, ShardedSampler)]
    sampler = undivided[min(1, len(undivided) - 1)]
    if state.get("epoch", 0) > 0 and not (knows_epoch(sampler) or hasattr(sampler, "set_epoch")):
        warn(
            f"a {type(sampler).__name__} has no epoch and no state, so it restarts from the beginning; this is "
            "correct only if it yields the same order every epoch. Otherwise add state_dict() and load_state_dict(), "
            "or use a sampler of gluonloader",
        )
    if stateful is not None:
        restore(stateful, state["snapshot"])
        drop_carried(batch_sampler, drawn)
        skip = 0
    return Start(state["batch"], skip, tuple(ranges_field(state, "ahead")), count_in(state))


def stateful_part(batch_sampler: Any) -> Any:
    """The batch sampler or its sampler, whichever has `state_dict` and `load_state_dict`; None if neither has."""
    for sampler in (batch_sampler, getattr(batch_sampler, "sampler", None)):
        if has_state(sampler):
            return sampler
    return None


def snapshot(stateful: Any) -> Any:
    """The state of a stateful sampler, as JSON."""
    return state_to_json(type(stateful).__name__, stateful.state_dict())


def restore(stateful: Any, saved: Any) -> None:
    """Loads a `snapshot` into a stateful sampler."""
    stateful.load_state_dict(state_from_json(saved))


def drop_carried(batch_sampler: Any, drawn: int) -> None:
    """Drops the indices that the last epoch carried over if a batch was drawn, since the first batch contains them."""
    if drawn and isinstance(batch_sampler, BatchSampler):
        batch_sampler.carried = []


def seed_of_rank(seed: int, batch_sampler: Any) -> int:
    """The seed of this rank's samples: ranks share the order of a sampler, but not the random numbers of samples."""
    places = [place for part in chain_of(batch_sampler) if (place := rank_of(part)) is not None]
    rank = next((index for index, _ in places if index), 0)
    return batch_seed(seed, -rank) if rank else seed  # no batch has this seed, since epochs are not negative


def _skipped(batch_sampler: Any, pass_state: Mapping[str, Any]) -> int:
    """How many indices of the epoch were delivered before the start of a pass, and so at most how many batches."""
    skipped, saved = 0, pass_state
    for sampler in chain_of(batch_sampler):
        if isinstance(sampler, (BatchSampler, ShardedSampler)):
            skipped += saved.get("start", 0)
            saved = saved["sampler"]
    return skipped


def _check_shard(sampler: ShardedSampler, state: Mapping[str, Any]) -> None:
    """Checks that batches delivered out of order belong to this shard: in another shard their numbers differ."""
    inner = state["sampler"]
    while isinstance(inner, Mapping) and inner.get("kind") != type(sampler).__name__:
        inner = inner.get("sampler")
    if not isinstance(inner, Mapping):
        return
    saved = f"shard {inner.get('index')} of {inner.get('num_shards')}"
    ours = f"shard {sampler.index} of {sampler.num_shards}"
    if saved != ours:
        right = f"{saved} delivered these batches out of order, but this is {ours}"
        raise bad_state("ahead", state["ahead"], f"{right}; load the state of this shard, or save with in_order=True")
