"""Where an epoch of a dataset with `__getitem__` stands: how a position is saved, checked and loaded.

    order of a sampler     0 1 2 3 4 5 6 7 8 9 10 11    `offset`: so many keys come before the position, on all ranks
    share of each rank     0 2 4 6 ... | 1 3 5 7 ...    ShardedSampler: every rank takes its keys from the rest
    batches of a rank      [0 2] [4 6] ...              BatchSampler; `batch` is the number of the next one

NOTE [offset]: a position counts the keys of the order of all ranks, not the batches of one rank. So a position that was
saved with another batch size or on other ranks needs no translation: the rest of the order starts at the same offset.
The number of the next batch stays, so that no two batches of an epoch have the same seed. All ranks that have delivered
equally many batches are at the same offset, so merging their states is comparing them.

`carried` contains the keys that the epoch before has carried over to this one (rollover). Batch 0 contains them, so
they are still due if `batch` is 0. If the epoch is left early, the next epoch starts with the same ones.

Samplers are restored in one of three ways:

    ours       the pass starts at the offset
    stateful   call `load_state_dict`; the plan calls `state_dict` before each draw, since it draws ahead of delivery
    any other  a new pass draws the keys before the offset again, without reading their samples
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from ..errors import a_class, bad_argument, bad_state, warn
from ..frameworks import state_from_json
from ..indices import COMPARED, as_list
from ..randomness import batch_seed
from ..sampler.base import (
    BatchSampler,
    OrderedSampler,
    copy_of,
    epoch_of,
    may_yield,
    order_of,
    read_ahead_of,
    start_order,
)
from ..sampler.passes import BatchPass, Pass, as_keys, length_of, skip, still
from ..sampler.saved import chain_of, has_rank, knows_epoch, loading_order, replicas_of, saved_order
from ..sampler.sharded import ShardedSampler, rank_of
from ..sampler.users import restore, snapshot, stateful_part
from ..state import MOST, State, check_same, field, int_field, ranges_field
from .cut import Cut, cut_of
from .error_count import count_in
from .first_keys import FirstKeys, are_known, check_first_keys
from .progress import Start

_JSON_KEYS: Final = (int, str, float, bool, type(None))  # indices of these types survive JSON
_OURS: Final = (OrderedSampler, ShardedSampler, BatchSampler)


class OrderPass:
    """A pass over a batch sampler, and the positions in it.

    Args:
        start: where it starts.
        epoch: of the sampler, to read its order without a change to the sampler; None starts its next pass.
        carried: the keys that come first in batch 0, if they are not those of the batch sampler.

    Attributes:
        epoch: of the sampler.
        batches: the iterator over the batches.
    """

    def __init__(
        self, batch_sampler: Any, start: Start, epoch: int | None = None, carried: Sequence[Any] | None = None
    ) -> None:
        self._cut = cut = cut_of(batch_sampler)
        self._first = start.number - start.skip  # the number of the batch that comes first in the pass
        if carried is None:
            carried = [] if cut.batches is None else list(cut.batches.carried)
        self._carried, self._due = carried, carried if self._first == 0 else []
        offset = cut.offset_after(self._first, 0, len(carried)) if start.offset is None else start.offset
        self._offset = offset
        self.epoch = epoch_of(cut.order) if epoch is None else epoch
        self._about, self._saved = _about(cut), _of_share(cut)
        if not cut.computed:
            self._saved |= saved_order(cut.order, self.epoch)
        self._first_keys, saved = FirstKeys(cut.order, start.sampler), start.sampler
        _warn_of_other_epoch(cut.order, self.epoch, start)
        is_stateful = stateful_part(batch_sampler) is not None
        # A sampler with a state continues without its first keys, and one with a rank may load a state of another rank.
        self._has_own_order = is_stateful or (not cut.computed and has_rank(chain_of(cut.order)))
        if epoch is None:
            self._order = start_order(cut.order)
        else:  # of a copy, since a mixture keeps what it has computed last
            order = order_of(copy_of(cut.order), epoch)
            assert order is not None, "only the epoch of a computed sampler is passed"
            self._order = still(order)
        if start.number and saved is not None and are_known(cut.order) and check_first_keys(saved):
            self._first_keys.note(self._known_keys())
        self.batches = self._iterate(0 if is_stateful else offset)
        self._skip(self.batches, start.skip)

    def _iterate(self, offset: int) -> Iterator[Any]:
        cut, order = self._cut, self._order
        if cut.share is not None:
            batches: Any = cut.share.sampler
            if order is None:
                divided: Any = self._iterate_users(batches)
            else:
                divided = order if batches is cut.order else batches.rearranged(order)
            keys = cut.share.pass_over(divided, self._items_before(offset))
            offset = 0
        elif order is None:
            keys = self._iterate_users(cut.order)
            if not isinstance(keys, Pass):
                self._skip(keys, offset)
                offset = 0
        else:
            keys = Pass(order, length_of(cut.order), read_ahead_of(cut.order))
        if cut.batches is None or cut.size is None:
            return keys
        return BatchPass(cut.batches, keys, self._due, cut.size, cut.last_batch, offset)

    def _known_keys(self) -> Iterable[Any]:
        """The first keys of an order that can be read without a pass."""
        return () if self._order is None else as_list(as_keys(self._order[0:COMPARED]))

    def _iterate_users(self, sampler: Any) -> Iterator[Any]:
        keys: Iterator[Any] = iter(sampler)
        if isinstance(keys, Pass):  # of a sampler of gluonloader in the user's; it can go back, and shall still do so
            self._first_keys.note(keys.first(COMPARED))
        elif not hasattr(keys, "seek"):  # the order of a loader of torch compares keys by itself
            keys = chain(self._first_keys.noted(keys), keys)
        return keys

    def _skip(self, keys: Iterator[Any], count: int) -> None:
        if not skip(keys, count):
            self._first_keys.warn_of_end()

    def _items_before(self, offset: int) -> int:
        """How many keys come before an offset, or, if ranks divide the batches that we cut, how many batches."""
        cut = self._cut
        return offset if cut.share is None or cut.share.sampler is cut.order else -(-offset // (cut.size or 1))

    def restart(self, number: int) -> None:
        """Starts again with a batch, for which the state of a stateful sampler was restored."""
        if number:
            self._due = []
        self.batches = self._iterate(0)

    def seek(self, number: int) -> None:
        """Continues with the batch of this number.

        Raises:
            TypeError: the sampler cannot do that.
        """
        batches: Any = self.batches
        if self._cut.share is not None and self._order is None:
            raise TypeError(
                f"{a_class(self._cut.order)} whose order several ranks divide cannot return to the last delivered "
                "batch; use a sampler of gluonloader, or a function of the epoch"
            )
        if not hasattr(batches, "seek"):
            raise TypeError(
                f"{a_class(self._cut.order)} cannot return to the last delivered batch; "
                "add state_dict() and load_state_dict() to it"
            )
        batches.seek(number - self._first)

    def state(self, number: int) -> dict[str, Any]:
        """The position before a batch, without its number.

        Raises:
            TypeError: JSON cannot store the carried keys.
        """
        cut = self._cut
        offset = cut.offset_after(number - self._first, self._offset, len(self._due))
        order = {} if self._order is None else saved_order(cut.order, self.epoch, self._order, offset)
        about = {"carried": _as_json(self._carried), **self._about}
        count = self._items_before(offset)
        if are_known(cut.order):
            count = COMPARED
            if self._first_keys.is_empty:
                self._first_keys.note(self._known_keys())
        first = {} if self._has_own_order else self._first_keys.saved(count)
        return {"offset": offset, **about, "sampler": {**order, **self._saved, **first}}

    @property
    def count(self) -> int:
        """The number of batches in the whole epoch."""
        cut = self._cut
        if cut.batches is not None:
            return cut.batches.count(len(self._carried))
        return len(cut.order if cut.share is None else cut.share)

    def commit(self) -> None:
        """Moves the keys that are left over to the next epoch (rollover), after all batches were delivered."""
        if isinstance(self.batches, BatchPass):
            self.batches.commit()


def _about(cut: Cut) -> dict[str, Any]:
    size = {"batch_size": cut.size, "last_batch": cut.last_batch}
    return {**size, "rank": cut.rank, "ranks": cut.ranks, "divides": cut.divides}


def _of_share(cut: Cut) -> dict[str, Any]:
    """What a position of a rank contains besides what a single process saves of its order."""
    if cut.share is None:
        return {}
    saved: dict[str, Any] = {"length": length_of(cut.order)}
    if (stateful := cut.share.stateful) is not None:
        saved["snapshot"] = snapshot(stateful)  # before the pass, which draws the keys before the offset again
    return saved


def fresh_state(batch_sampler: Any) -> dict[str, Any]:
    """The position before the next epoch, as fields of a state."""
    cut = cut_of(batch_sampler)
    carried = [] if cut.batches is None else _as_json(cut.batches.carried)
    saved = {**saved_order(cut.order, epoch_of(cut.order)), **_of_share(cut)}
    fields = {"batch": 0, "ahead": [], "offset": 0, "carried": carried, **_about(cut), "sampler": saved}
    stateful = stateful_part(batch_sampler)
    return fields if stateful is None else {**fields, "snapshot": snapshot(stateful)}


def _as_json(keys: Sequence[Any]) -> list[Any]:
    """The indices that an epoch has carried over, for a state.

    Raises:
        TypeError: JSON cannot store one of them.
    """
    plain = [key.item() if isinstance(key, np.generic) else key for key in keys]
    for key in plain:
        if not isinstance(key, _JSON_KEYS):
            raise TypeError(
                f"the index {key!r} is carried over into the next epoch, but a state can contain only indices that "
                "are int, str, float, bool or None; use such indices, or last_batch='keep' or 'discard'"
            )
    return plain


def _warn_of_other_epoch(order: Any, epoch: int, start: Start) -> None:
    """Warns if the epoch of a sampler of gluonloader was set after a position in another epoch was loaded."""
    saved = None if start.sampler is None or not start.number else start.sampler.get("epoch")
    if saved is not None and isinstance(order, OrderedSampler) and saved != epoch:
        warn(
            f"sampler: set_epoch({epoch}) was called on this {type(order).__name__} after a position in its epoch "
            f"{saved} was loaded, so samples come twice or not at all; call it before load_state_dict, or not at all"
        )


def keep(batch_sampler: Any) -> Callable[[], None]:
    """Saves the state of a batch sampler; returns a function that restores it."""
    samplers, cut = chain_of(batch_sampler), cut_of(batch_sampler)
    ours = [(sampler, dict(vars(sampler))) for sampler in samplers if isinstance(sampler, _OURS)]
    users = [(sampler, saved_order(sampler)) for sampler in samplers if not isinstance(sampler, _OURS)][:1]
    stateful = stateful_part(batch_sampler)
    if stateful is None and cut.share is not None:
        stateful = cut.share.stateful
    state = None if stateful is None else snapshot(stateful)

    def restore_all() -> None:
        for sampler, attributes in ours:
            sampler.__dict__ = dict(attributes)
        for sampler, saved in users:
            loading_order(sampler, saved)()
        if stateful is not None:
            restore(stateful, state)

    return restore_all


# -- Loading ----------------------------------------------------------------------------------------------------------


def fit(batch_sampler: Any, state: State, new_batch_size: bool) -> State:
    """Checks each field of a position, and returns it for our batch size and our rank.

    Args:
        new_batch_size: whether the number of samples in a batch of all ranks together may differ.

    Raises:
        ValueError: it does not fit this batch sampler.
    """
    cut = cut_of(batch_sampler)
    number, offset = int_field(state, "batch"), int_field(state, "offset")
    ahead, rank, ranks = ranges_field(state, "ahead"), int_field(state, "rank"), int_field(state, "ranks", 1)
    count_in(state)
    if new_batch_size and cut.batches is None:
        right = (
            f"{a_class(batch_sampler)} chooses the samples of each batch itself, so batches of another size do "
            "not continue its order; remove new_batch_size, and pass the batch sampler that was saved"
        )
        raise bad_argument("new_batch_size", new_batch_size, right)
    if rank >= ranks:
        raise bad_state("rank", rank, f"must be less than ranks={ranks}")
    if field(state, "divides") not in ("samples", "batches"):
        raise bad_state("divides", state["divides"], "must be 'samples' or 'batches'")
    if ahead and ahead[0].start <= number:
        raise bad_state("ahead", state["ahead"], f"must be greater than batch={number}")
    _check_order(cut, state)
    check_same(state, "last_batch", cut.last_batch, "this loader")
    _check_batch_size(cut, state, new_batch_size)
    carried = _carried(cut, state)
    if cut.computed:  # otherwise the length may be wrong
        if number > offset:
            raise bad_state("batch", number, f"must be at most offset={offset}")
        count = cut.batches_left(offset, 0 if number else len(carried))
        if count is not None and ahead and ahead[-1].stop > number + count:
            raise bad_state("ahead", state["ahead"], f"must be less than {number + count}, where the epoch ends")
    if stateful_part(batch_sampler) is not None:
        state_from_json(field(state, "snapshot"))
    return {**state, **_about(cut), "carried": carried}


def _check_order(cut: Cut, state: State) -> None:
    """Checks that a position is one of our order."""
    saved, share = field(state, "sampler"), cut.share
    loading_order(cut.order, saved)
    check_first_keys(saved)
    if share is None and "snapshot" in saved:
        right = f"one of {state['ranks']} ranks has saved it; pass ranks=(0, 1) to continue in a single process"
        raise bad_state("ranks", state["ranks"], right)
    if share is not None:
        if (saves := share.stateful is not None) != ("snapshot" in saved):
            has = "has" if saves else "has no"
            raise ValueError(
                f"state: sampler.snapshot: the sampler here {has} state_dict(), unlike the one that was saved"
            )
        state_from_json(saved.get("snapshot"))
        if "length" in saved:  # a loader without ranks does not ask a user's sampler for its length
            check_same(saved, "length", length_of(cut.order), f"this {type(cut.order).__name__}", "sampler.")
    length, offset = cut.length, state["offset"]
    if offset > (MOST if length is None else length):
        raise bad_state("offset", offset, f"must be at most {length}, the length of the order")
    if not isinstance(cut.order, _OURS) and (ours := replicas_of(cut.order)) != saved.get("num_replicas"):
        right = (
            f"this {type(cut.order).__name__} has {ours}, and cannot distribute the rest of an epoch over another "
            "number of ranks; pass ranks to the loader instead"
        )
        raise bad_state("sampler.num_replicas", saved.get("num_replicas"), right)


def _check_batch_size(cut: Cut, state: State, new_batch_size: bool) -> None:
    if cut.batches is None:
        check_same(state, "batch_size", cut.size, "this batch sampler")
    else:
        saved, ours = (int_field(state, "batch_size", 1), state["ranks"]), (cut.batches.batch_size, cut.ranks)
        if saved[0] != ours[0] and saved[0] * saved[1] != ours[0] * ours[1] and not new_batch_size:
            raise bad_state("batch_size", saved[0], _refusal(saved, ours))
    if not state["ahead"]:
        return
    if (size := state["batch_size"]) != cut.size:
        right = (
            f"these batches of {size} samples were delivered out of order, so other samples between them are due, "
            f"which batches of {cut.size} samples cannot leave out; load the state with batch_size={size}, or save "
            "with in_order=True"
        )
        raise bad_state("ahead", state["ahead"], right)
    if (theirs := (state["rank"], state["ranks"])) != (cut.rank, cut.ranks):
        right = (
            f"rank {theirs[0]} of {theirs[1]} delivered these batches out of order, but this is rank {cut.rank} of "
            f"{cut.ranks}; load the state of this rank, or save with in_order=True"
        )
        raise bad_state("ahead", state["ahead"], right)


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


def _carried(cut: Cut, state: State) -> list[Any]:
    """The carried keys of a position, as far as they are ours; ValueError if they are due and cannot come."""
    size = 1 if cut.size is None or cut.last_batch != "rollover" else state["batch_size"]
    carried, is_due = _checked_carried(cut.order, state, size), state["batch"] == 0
    if not carried:
        return carried
    fits = cut.size is not None and len(carried) < cut.size
    if is_due and not fits:
        right = (
            f"the epoch before carried over {len(carried)} samples, which do not fit into the first batch with "
            f"batch_size={cut.size}; pass a larger batch_size, or load a state from after the first batch of an epoch"
        )
        raise bad_state("carried", carried, right)
    is_ours = (state["rank"], state["ranks"]) == (cut.rank, cut.ranks)
    if is_due and not is_ours:
        right = (
            f"rank {state['rank']} of {state['ranks']} started the epoch with these samples of its own, but this is "
            f"rank {cut.rank} of {cut.ranks}; load a state without carried indices"
        )
        raise bad_state("carried", carried, right)
    return carried if fits and is_ours else []


def _checked_carried(sampler: Any, state: State, size: int) -> list[Any]:
    """Checks the field `carried` of a state; returns the indices.

    Args:
        sampler: it yields such indices.
        size: of a batch; fewer indices are carried over.
    """
    carried: Any = field(state, "carried")
    listed = isinstance(carried, list) and len(carried) < size
    if not listed or not all(isinstance(key, _JSON_KEYS) for key in carried):
        raise bad_state("carried", carried, f"must be a list of at most {size - 1} indices")
    for key in carried:
        if not may_yield(sampler, key):
            raise bad_state("carried", carried, f"{key!r} is no index of this {type(sampler).__name__}")
    return list(carried)


def load(batch_sampler: Any, state: State) -> Start:
    """Prepares a batch sampler for a position that `fit` has returned; returns where its next pass starts."""
    cut, saved = cut_of(batch_sampler), state["sampler"]
    loading_order(cut.order, saved)()
    warn_at = getattr(cut.order, "sampler", cut.order) if cut.size is None else cut.order
    known = knows_epoch(warn_at) or hasattr(warn_at, "set_epoch") or check_first_keys(saved)
    if state.get("epoch", 0) > 0 and not known:
        warn(
            f"{a_class(warn_at)} has no epoch and no state, so it restarts from the beginning; this is "
            "correct only if it yields the same order every epoch. Otherwise add state_dict() and load_state_dict(), "
            "or use a sampler of gluonloader",
        )
    stateful = stateful_part(batch_sampler)
    if cut.share is not None and cut.share.stateful is not None:
        restore(cut.share.stateful, saved["snapshot"])
    if stateful is not None:
        _warn_of_kept_indices(batch_sampler, stateful, state["batch"])
        restore(stateful, state["snapshot"])
    if cut.batches is not None:
        cut.batches.carried = list(state["carried"])
    offset, is_cut = state["offset"], cut.batches is not None or cut.share is not None
    # The pass of a batch sampler that is neither divided nor cut can only be skipped; see `OrderPass.seek`.
    skipped = 0 if is_cut or stateful is not None else offset
    ahead = tuple(ranges_field(state, "ahead"))
    return Start(state["batch"], skipped, offset - skipped, ahead, count_in(state), saved)


def _warn_of_kept_indices(batch_sampler: Any, stateful: Any, number: int) -> None:
    """Warns if a user's batch sampler may keep indices for later batches, which the state of its sampler lacks."""
    kind = type(batch_sampler)
    of_torch = kind.__module__.startswith("torch.utils.data") or hasattr(batch_sampler, "index_sampler")  # or its order
    only_cuts = of_torch or isinstance(batch_sampler, BatchSampler)
    if number and stateful is not batch_sampler and not only_cuts:
        warn(
            f"batch_sampler: the state of this {kind.__name__} is that of its {type(stateful).__name__} alone, so "
            "indices that it keeps for later batches are lost; add state_dict() and load_state_dict() to the batch "
            "sampler"
        )


def is_regular(batch_sampler: Any, state: State) -> bool:
    """Whether the batches before a position can have the size and the ranks of this batch sampler."""
    cut, carried = cut_of(batch_sampler), len(state["carried"])
    return bool(state["offset"] == cut.offset_after(state["batch"], 0, carried))


def seed_of_rank(seed: int, batch_sampler: Any) -> int:
    """The seed of this rank's samples: ranks share the order of a sampler, but not the random numbers of samples."""
    places = [place for part in chain_of(batch_sampler) if (place := rank_of(part)) is not None]
    rank = next((index for index, _ in places if index), 0)
    return batch_seed(seed, -rank) if rank else seed  # no batch has this seed, since epochs are not negative
