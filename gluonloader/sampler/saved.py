"""Pass states: what the next pass of a sampler depends on, as JSON that does not grow with the number of samples.

    state = sampler.pass_state()                    before a pass starts
    sampler.check_pass_state(state)                 raises a ValueError if the state does not fit
    left = sampler.load_pass_state(state, drawn)    the next pass repeats that pass; `left` of the `drawn` keys are
                                                    still to be skipped

A user's sampler needs none of these methods: the functions here save those attributes that such a sampler has. No check
calls code of the user, except to read the length of a sampler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ..declared import IN_MEMORY
from ..errors import bad_state
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


def digest(array: NDArray[Any]) -> str:
    """A hash of the content of an array, 32 hexadecimal digits; a state contains it instead of the array."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return hashlib.blake2b(little.tobytes(), digest_size=16).hexdigest()


def saved_pass(sampler: Any) -> dict[str, Any]:
    """What the next pass of any sampler depends on, as far as the sampler has attributes for it."""
    saved: dict[str, Any] = {"kind": type(sampler).__name__}
    if hasattr(sampler, "pass_state"):
        saved |= sampler.pass_state()
    elif isinstance(sampler, FIXED):
        saved["length"] = len(sampler)
    elif _counts_epochs(sampler):
        saved["epoch"] = sampler.epoch
        if (ranks := replicas_of(sampler)) is not None:
            saved["num_replicas"] = ranks
    return saved


def check_saved_pass(sampler: Any, state: Any) -> None:
    """Raises a ValueError, which names the field, if a state that `saved_pass` returned does not fit a sampler."""
    whose = "this sampler"
    check_same(state, "kind", type(sampler).__name__, whose, PATH)
    if hasattr(sampler, "check_pass_state"):
        sampler.check_pass_state(state)
    elif isinstance(sampler, FIXED):
        check_same(state, "length", len(sampler), whose, PATH)
    elif _counts_epochs(sampler):
        int_field(state, "epoch", path=PATH)


def load_saved_pass(sampler: Any, state: Mapping[str, Any], drawn: int) -> int:
    """Makes the next pass of any sampler repeat the pass that `saved_pass` described.

    The caller does not need the first `drawn` keys of that pass again. Returns how many keys of the next pass the
    caller still has to skip.

    Raises:
        ValueError: the state does not fit; the text names the field, and nothing has changed.
    """
    check_saved_pass(sampler, state)
    if hasattr(sampler, "load_pass_state"):
        return int(sampler.load_pass_state({key: state[key] for key in state if key != "kind"}, drawn))
    if not isinstance(sampler, FIXED) and _counts_epochs(sampler):
        sampler.set_epoch(state["epoch"])
    return drawn


def inner_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pass state of the sampler inside a sampler, from the pass state of the outer one."""
    inner = field(state, "sampler", PATH)
    if not isinstance(inner, Mapping):
        raise bad_state(PATH + "sampler", inner, "must be a dict")
    return inner


def refreshed(sampler: Any, state: Mapping[str, Any], drawn: int) -> dict[str, Any]:
    """The state of a pass that has started, with the fields that changed since then, such as weights.

    Args:
        drawn: number of keys of this pass before the position that is saved.
    """
    now = dict(state)
    if "sampler" in now:
        now["sampler"] = refreshed(sampler.sampler, now["sampler"], sampler.drawn_inside(now, drawn))
    return sampler.refreshed(now, drawn) if hasattr(sampler, "refreshed") else now


def knows_epoch(sampler: Any) -> bool:
    """Whether a loaded position sets the epoch of this sampler; otherwise the caller has to call `set_epoch`."""
    known = isinstance(sampler, FIXED) or hasattr(sampler, "pass_state")
    return known or has_state(sampler) or _counts_epochs(sampler)


def _counts_epochs(sampler: Any) -> bool:
    epoch = getattr(sampler, "epoch", None)
    return hasattr(sampler, "set_epoch") and isinstance(epoch, int) and not isinstance(epoch, bool)
