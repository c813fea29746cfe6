"""What a position in the order of a sampler contains, as JSON that does not grow with the number of samples.

    saved = saved_order(sampler, epoch, order, offset)    the identity of the order, and what else it needs
    load = loading_order(sampler, saved)                  raises a ValueError if it does not fit; changes nothing
    load()                                                the next pass is one over that order

A user's sampler needs no method for this: the functions here save those attributes that such a sampler has. No check
calls code of the user, except to read the length of a sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from ..declared import IN_MEMORY
from ..errors import bad_state
from ..indices import COMPARED, checksum_of
from ..state import check_same, field, has_state, int_field

PATH: Final = "sampler."  # where pass states lie in the state of a loader
FIXED: Final = (list, tuple, range, *IN_MEMORY)  # used as samplers, these have the same order in every epoch


def chain_of(sampler: Any) -> list[Any]:
    """A sampler, the sampler in it, and so on."""
    chain: list[Any] = []
    while sampler is not None and len(chain) < 100:  # an attribute `sampler` may refer to its own object
        chain.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return chain


def replicas_of(sampler: Any) -> int | None:
    """The number of ranks of torch's `DistributedSampler` and of samplers like it; None for any other sampler."""
    count = getattr(sampler, "num_replicas", None)
    return count if isinstance(count, int) else None


def has_rank(samplers: Iterable[Any]) -> bool:
    """Whether one of the samplers yields other indices on another rank, as torch's `DistributedSampler`."""
    return any(hasattr(sampler, "rank") or hasattr(sampler, "process_index") for sampler in samplers)


def saved_order(sampler: Any, epoch: int = 0, order: Any = None, offset: int = 0) -> dict[str, Any]:
    """What a position in the order of any sampler contains, as far as the sampler has attributes for it.

    Args:
        epoch, order: of a sampler of gluonloader; any other one is in its next epoch.
        offset: of the position in the order.
    """
    saved: dict[str, Any] = {"kind": type(sampler).__name__}
    if hasattr(sampler, "order_state"):
        saved |= sampler.order_state(epoch, order, offset)
    elif isinstance(sampler, FIXED):
        saved["length"] = len(sampler)
    else:
        if _counts_epochs(sampler):
            saved["epoch"] = sampler.epoch
        if (ranks := replicas_of(sampler)) is not None:
            saved["num_replicas"] = ranks
            saved |= _arguments_of(sampler)
    return saved


def _arguments_of(sampler: Any) -> dict[str, Any]:
    """The arguments of torch's `DistributedSampler`, and of samplers like it, on which its order depends."""
    found = {name: getattr(sampler, name, None) for name in ("seed", "shuffle")}
    return {name: value for name, value in found.items() if isinstance(value, (bool, int))}


def identity_of(sampler: Any) -> dict[str, Any]:
    """What must be equal where a position in the order of a sampler of gluonloader is loaded."""
    if hasattr(sampler, "identity"):
        about = sampler.identity()
    else:
        about = {"length": len(sampler), "first_keys": checksum_of(list(islice(sampler, COMPARED)))}
    return {"kind": type(sampler).__name__, **about}


def loading_order(sampler: Any, state: Any) -> Callable[[], None]:
    """Checks what `saved_order` has returned; returns a function that makes the next pass one over that order.

    Raises:
        ValueError: the state does not fit; the text names the field.
    """
    whose = "this sampler"
    check_same(state, "kind", type(sampler).__name__, whose, PATH, "pass the same shuffle or sampler")
    if hasattr(sampler, "loading"):
        load: Callable[[], None] = sampler.loading(state)
        return load
    if isinstance(sampler, FIXED):
        check_same(state, "length", len(sampler), whose, PATH)
    elif replicas_of(sampler) is not None:
        for name, ours in _arguments_of(sampler).items():
            if name in state:
                check_same(state, name, ours, whose, PATH)
    if _counts_epochs(sampler) and not isinstance(sampler, FIXED):
        return partial(sampler.set_epoch, int_field(state, "epoch", path=PATH))
    return nothing


def nothing() -> None:
    """Loads the state of a sampler that has none."""


def inner_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a position contains of the sampler in a sampler."""
    inner = field(state, "sampler", PATH)
    if not isinstance(inner, Mapping):
        raise bad_state(PATH + "sampler", inner, "must be a dict")
    return inner


def knows_epoch(sampler: Any) -> bool:
    """Whether a loaded position sets the epoch of this sampler; otherwise the caller has to call `set_epoch`."""
    known = isinstance(sampler, FIXED) or hasattr(sampler, "order_state")
    return known or has_state(sampler) or _counts_epochs(sampler)


def _counts_epochs(sampler: Any) -> bool:
    epoch = getattr(sampler, "epoch", None)
    return hasattr(sampler, "set_epoch") and isinstance(epoch, int) and not isinstance(epoch, bool)
