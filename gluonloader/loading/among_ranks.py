"""How several ranks divide a dataset among themselves: the argument `ranks`, and an order that all ranks share.

    order of all ranks, the same on each --> ShardedSampler --> the keys or batches of this rank

A rank does not see the order of another rank. So an order that is known to differ is refused, and any other order of a
user's sampler is compared through `gather`, or there is a warning.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from ..describe import counted, describe
from ..errors import bad_argument, warn
from ..indices import COMPARED, as_list
from ..position.progress import Start
from ..randomness import PreservedGenerators
from ..ranks import Policy, Ranks, rank_and_size
from ..sampler.base import BatchSampler, copy_of, epoch_of, is_computed, order_of, unseeded
from ..sampler.passes import as_keys
from ..sampler.saved import chain_of
from ..sampler.sharded import ShardedSampler, rank_of
from ..sampler.users import users_copy
from ..segments import PackedRow
from .random_order import draws_unseeded

_EVEN: Final = {"repeat": "pad", "drop": "drop", "uneven": "keep"}  # what ShardedSampler calls the policies
_SAME: Final = "the ranks divide one order, so pass the same dataset, arguments, seeds and state on all ranks"


def ranks_of(argument: Any, default: Policy) -> Ranks:
    """The argument `ranks` of `DataLoader` as an object; `default` is the policy if none was passed."""
    ranks = argument
    if isinstance(ranks, str):
        ranks = Ranks(*rank_and_size(ranks, "ranks"))  # type: ignore[arg-type]  # it checks the value
    elif isinstance(ranks, tuple) and len(ranks) == 2:
        ranks = Ranks(*ranks)
    if not isinstance(ranks, Ranks):
        raise bad_argument("ranks", ranks, "must be (index, count), 'env', 'torch', 'mpi', or a gluonloader.Ranks")
    return replace(ranks, policy=ranks.policy or default)


def refuse_unseeded(argument: Any) -> None:
    """Raises the error for a loader that has no seed but needs one; `argument` is the argument `ranks`."""
    right = "without a seed, each process draws its own one; pass the same seed on all ranks, e.g. seed=0"
    raise bad_argument("ranks", argument, right)


def dividing_argument(sampler: Any, batch_sampler: Any) -> str:
    """The argument that divides the samples among ranks, such as "sampler=DistributedSampler(...)"; "" if none does."""
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if any(map(_divides, _parts_of(value))):
            return f"{name}={type(value).__name__}(...)"
    return ""


def _divides(sampler: Any) -> bool:
    # `num_parts` is an attribute of SplitSampler, also of GluonNLP's, and `num_processes` of Accelerate's samplers.
    return rank_of(sampler) is not None or hasattr(sampler, "num_parts") or hasattr(sampler, "num_processes")


def _parts_of(sampler: Any) -> list[Any]:
    """A sampler and those in it; batch samplers of Accelerate call the inner one `batch_sampler`."""
    parts = chain_of(sampler)
    return parts + chain_of(getattr(parts[-1], "batch_sampler", None)) if parts else []


def part_of_rank(name: str, order: Any, ranks: Ranks) -> ShardedSampler:
    """What this rank reads of an order that all ranks share.

    Args:
        name: the argument that is the order, "sampler" or "batch_sampler"; "" if the loader has made it.

    Raises:
        ValueError: the order is known to differ between the ranks, or it cannot be divided.
    """
    if name:
        _check_users_order(name, order, ranks)
    return ShardedSampler(order, ranks.count, ranks.index, _EVEN[ranks.policy or "repeat"])  # type: ignore[arg-type]


def _check_users_order(name: str, order: Any, ranks: Ranks) -> None:
    if not hasattr(order, "__len__"):
        right = "it has no length, so it cannot be divided among the ranks; add a method __len__ to it"
        raise bad_argument(name, order, right)
    ours = unseeded(order)
    drawn = next(filter(draws_unseeded, _parts_of(order)), None) if ours is None else ours
    if drawn is not None:
        kind = type(drawn).__name__
        cure = "pass a seeded generator if it accepts one" if ours is None else f"pass seed=... to the {kind}"
        right = f"this {kind} has no seed, so its order differs between the ranks; {cure}, with one seed for all ranks"
        replaceable = name == "sampler" and kind == "RandomSampler"
        more = ", or pass shuffle=True and seed=... to the loader instead" if replaceable else ""
        raise bad_argument(name, order, right + more)
    if isinstance(order, BatchSampler) and order.last_batch == "rollover":
        right = "last_batch='rollover' moves samples from rank to rank; pass sampler=..., batch_size=... and "
        raise bad_argument(name, order, right + "last_batch='rollover' to the loader instead of a batch sampler")
    if ranks.gather is None and ranks.count > 1 and not is_computed(order):
        warn(
            f"{name}={describe(order)}: {ranks.count} ranks divide its order, so it has to yield the same order on all "
            "ranks, but this loader cannot compare them; see that it does, e.g. by the same seed, and pass "
            "ranks=Ranks(..., gather=...), which compares the orders and ends this warning"
        )


class Comparison:
    """Compares through `gather` what has to be the same on all ranks.

    Args:
        order: what the ranks divide.
        dataset: a copy of the order refers to the same dataset.
        facts: more arguments that have to be the same, by name.
    """

    def __init__(self, ranks: Ranks, order: Any, dataset: Any, facts: dict[str, Any]) -> None:
        self._ranks, self._order, self._dataset, self._facts = ranks, order, dataset, facts

    def check(self, epoch: int, start: Start) -> None:
        """Compares them before the epoch starts there. All ranks have to call this.

        Raises:
            ValueError: they differ, on each rank; the text names the first difference.
        """
        found = {f"{name}={value!r}": value for name, value in [*self._facts.items(), ("epoch", epoch)]}
        if self._ranks.policy != "uneven":  # those ranks have different numbers of batches
            delivered = start.number + sum(map(len, start.ahead))
            found[f"delivered {counted(delivered, 'batch', 'batches')} of the epoch"] = delivered
        for what, value in found.items():
            self._compare(what, value)
        self._compare("other first indices in the order", self._first())

    def _compare(self, what: str, value: Any) -> None:
        values, index = self._ranks.gathered(_number(value)), self._ranks.index
        different = [rank for rank, other in enumerate(values) if other != values[index]]
        if different:
            text = f"ranks: rank {index} has {what}, unlike rank {different[0]}"
            raise ValueError(f"{text}; {_SAME}")

    def _first(self) -> list[Any]:
        """The first keys or batches, from a copy of the order."""
        if is_computed(self._order):
            order = order_of(copy_of(self._order), epoch_of(self._order))
            return [] if order is None else as_list(as_keys(order[0:COMPARED]))
        with PreservedGenerators():
            return list(islice(users_copy(self._order, self._dataset), COMPARED))


def _number(value: Any) -> int:
    """A number below 2**31 for a value that consists of ints, floats and texts: the same in all processes."""
    return zlib.crc32(repr(_plain(value)).encode()) >> 1


def _plain(value: Any) -> Any:
    if isinstance(value, PackedRow):
        value = value.documents, value.starts, value.stops
    if isinstance(value, (list, tuple, np.ndarray)):
        return list(map(_plain, as_list(value)))
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (int, float, str, bytes, type(None))) else type(value).__name__
