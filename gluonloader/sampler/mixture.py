"""`MixtureSampler` mixes several datasets in given shares. mixing.py computes its steps."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, repeat
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int, is_positive
from ..describe import arguments, call, short_repr
from ..errors import bad_argument, bad_state, warn
from ..lengths import checksum_of_lengths, known_lengths
from ..randomness import batch_seed
from ..state import MOST, field
from .base import SeededSampler, check_orders_documents, unseeded
from .mixing import WHOLE, Advanced, Mixer, MixtureCheckpoint, MixtureSource, Weights
from .passes import Computed, Integers, Order, change_from, length_of, saved_of
from .saved import PATH, identity_of
from .shuffled import RandomSampler
from .weighted import WeightedSampler

Unit = Literal["samples", "tokens"]
Stop = Literal["first", "all"]

_SUMS: Final = ("counts", "balances", "tokens")  # of a checkpoint
_AT_ONCE: Final = 4096  # steps that are computed at once
_AT_ONCE_LINEAR: Final = 256  # the same while the weights change linearly: so many steps have the same weights
_KEPT: Final = 64  # checkpoints, and as many before them, `_AT_ONCE` steps apart: batches in flight need the last ones

_Changes = tuple[tuple[int, Weights], ...]  # from which step on which shares apply, ascending
# By the step of a change: from there on, the shares change linearly until they are these shares at that step. The next
# change ends that, but does not change what comes before it, since that was perhaps drawn already.
_Ramps = Mapping[int, tuple[int, Weights]]


@dataclass(frozen=True, slots=True)
class SourceStats:
    """What was drawn of one source of a `MixtureSampler` since its first epoch, by all ranks together.

    Attributes:
        samples: number of samples.
        epochs: `samples` divided by the number of samples in one pass over the source.
        tokens: number of tokens; None if the lengths of the samples are not known.
        name: of the source; None if the sources have no names.
    """

    samples: int
    epochs: float
    tokens: int | None
    name: str | None = None


class MixtureSampler(SeededSampler):
    """Yields indices of several datasets that are joined by a `ConcatDataset`, mixed in given shares.

    After every sample, each dataset has its share of the samples so far to within one sample; with `unit="tokens"`, its
    share of the tokens to within twice the longest sample. Each dataset is read in its own random order, one epoch
    after another, whatever the others do. An epoch of the mixture continues where the one before has ended.

    Args:
        sources: the `ConcatDataset` of the datasets; or the datasets, in the order in which they are joined, or their
            numbers of samples. A dict gives them names.
        weights: the share of each dataset, numbers >= 0, or a dict with the names of the sources; None for shares in
            proportion to their sizes. They are scaled so that their sum is 1.
        temperature: instead of `weights`: shares in proportion to size ** (1 / temperature). 1 for the sizes; a large
            one makes the shares more equal.
        epochs: instead of `weights`: how often an epoch of the mixture reads each dataset, numbers >= 0, or a dict.
        unit: what the shares count: 'samples' or 'tokens'. For tokens, the datasets need an attribute `lengths`, as a
            `TokenDataset` has.
        num_samples: number of samples in an epoch; None: `epochs` decides, or, if that is not passed, `stop`.
        stop: an epoch ends 'first': before a dataset would be read twice; 'all': when every dataset was read once. For
            tokens, this is computed from the mean lengths.
        samplers: the order of each dataset, samplers of gluonloader; None for random orders.
        seed: an int; None draws one from NumPy's global generator now.

    Set `weights` to change the shares while an epoch runs: they apply from the next index that is drawn. A loader draws
    indices ahead: call `flush()` on its iterator to draw these again. A `PackingSampler` draws whole windows.

    >>> mixture = MixtureSampler([6, 3, 1], weights=[0.6, 0.3, 0.1], seed=0)
    >>> [("a" if i < 6 else "b" if i < 9 else "c") for i in mixture]
    ['a', 'b', 'a', 'a', 'b', 'a', 'c', 'a', 'b', 'a']
    >>> MixtureSampler({"web": 6000, "code": 3000}, weights={"web": 0.8, "code": 0.2}, seed=0)
    MixtureSampler(web, code, weights=[0.8, 0.2], num_samples=7500)
    """

    _read_ahead = 0  # weights may change before an index that was read ahead is used

    def __init__(
        self,
        sources: Sequence[Any] | Mapping[str, Any],
        weights: Any = None,
        *,
        temperature: float | None = None,
        epochs: Any = None,
        unit: Unit = "samples",
        num_samples: int | None = None,
        stop: Stop = "first",
        samplers: Sequence[Any] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        if unit not in ("samples", "tokens"):
            raise bad_argument("unit", unit, "must be 'samples' or 'tokens'")
        if stop not in ("first", "all"):
            right = "must be 'first' or 'all'; for a mixture without end, pass a large num_samples, such as 10**12"
            raise bad_argument("stop", stop, right)
        if sum(argument is not None for argument in (weights, temperature, epochs)) > 1:
            raise ValueError("weights, temperature and epochs all set the shares; pass one of them")
        self._unit = unit
        names, sources = getattr(sources, "names", None), getattr(sources, "datasets", sources)  # of a ConcatDataset
        if isinstance(sources, (str, bytes)) or not hasattr(sources, "__len__") or not len(sources):
            raise bad_argument("sources", sources, "pass at least one dataset, in a list or a dict")
        self._names = list(sources) if isinstance(sources, Mapping) else names
        datasets = list(sources.values() if isinstance(sources, Mapping) else sources)
        self._sizes = [_size(self._name(number), dataset) for number, dataset in enumerate(datasets)]
        self._given = samplers
        self._lengths = [_lengths_of(self._name(number), dataset, unit) for number, dataset in enumerate(datasets)]
        self._set_sources()
        amounts = [self._amount(number, dataset) for number, dataset in enumerate(datasets)]
        weights, epochs = self._in_order("weights", weights), self._in_order("epochs", epochs)
        shares = _shares(amounts, weights, temperature, epochs)
        self._changes: _Changes = ((0, _whole(shares)),)
        self._shares_given = self._changes[0][1]
        self._scheduled: frozenset[int] = frozenset()  # the steps of changes that were set before they were reached
        self._ramps: _Ramps = {}
        self._pending: Weights | None = None  # set, but no index was drawn since then
        count = None if num_samples is None else check_int("num_samples", num_samples, 1)
        self._count = count or self._samples_until(stop, shares, amounts, epochs)
        if not self._count:
            raise bad_argument("epochs", epochs, "an epoch of the mixture has no sample; pass larger numbers")
        named = {} if self._names is None else {"names": self._names}
        self._identity = {**named, "sizes": self._sizes, "unit": unit, "length": self._count}
        if unit == "tokens":
            self._identity["lengths"] = [checksum_of_lengths(lengths) for lengths in self._lengths]
        zeros = (0,) * len(self._sizes)
        self._start = MixtureCheckpoint(0, zeros, zeros, zeros)
        # By step, in the order in which they were computed. Copies share the dict, so it is replaced, never changed.
        self._checkpoints: dict[int, MixtureCheckpoint] = {}
        self._computed: dict[int, Integers] = {}  # the indices of the last steps, by the step before which they start
        self._least = 0  # what comes before this step was perhaps drawn before the loaded position was saved
        self._drawn = 0  # the step up to which the newest pass was read

    def _name(self, number: int) -> str:
        """What error texts call a source."""
        return f"sources[{number if self._names is None else self._names[number]!r}]"

    def _in_order(self, name: str, values: Any) -> Any:
        """The values of all sources, of an argument that may be a dict with the names of the sources."""
        if not isinstance(values, Mapping):
            return values
        if self._names is None or set(values) != set(self._names):
            have = "the sources have no names; pass a list" if self._names is None else f"the names are {self._names}"
            raise bad_argument(name, dict(values), have)
        return [values[source] for source in self._names]

    def _set_sources(self) -> None:
        given, firsts = self._given, np.cumsum([0, *self._sizes]).tolist()
        if given is None:
            given = [RandomSampler(size, batch_seed(self.seed, number)) for number, size in enumerate(self._sizes)]
        if len(given) != len(self._sizes):
            raise bad_argument("samplers", given, f"pass {len(self._sizes)} samplers, one for each dataset")
        for number, sampler in enumerate(given):
            check_orders_documents(f"samplers[{number}]", sampler)
            if not length_of(sampler):
                raise bad_argument(f"samplers[{number}]", sampler, "it must have a length, and at least one index")
            if unseeded(sampler) is not None:
                raise bad_argument(f"samplers[{number}]", sampler, "its order has no seed; pass seed=... to it")
        self._sources = [
            MixtureSource(f"samplers[{number}]", *parts)
            for number, parts in enumerate(zip(given, firsts[:-1], self._sizes, self._lengths, strict=True))
        ]
        self._mixer = Mixer(self._sources, self._unit == "tokens")

    def _amount(self, number: int, source: Any) -> float:
        """How many samples or tokens one pass over a source has."""
        if self._unit == "samples":
            return self._sources[number].length
        known = getattr(source, "num_tokens", None)
        total = float(self._lengths[number].sum() if known is None else known)
        if not total:
            raise ValueError(
                f"{self._name(number)}: its documents have no tokens, so no share can be reached; remove it"
            )
        return total * self._sources[number].length / self._sizes[number]

    def _samples_until(self, stop: Stop, shares: NDArray[np.float64], amounts: list[float], epochs: Any) -> int:
        lengths = np.array([source.length for source in self._sources])
        if epochs is not None:
            return int(np.round(np.asarray(epochs, np.float64) * lengths).sum())
        in_samples = shares * lengths / np.array(amounts)  # a source with long samples needs fewer of them
        in_samples /= in_samples.sum()
        read = in_samples > 0
        full = lengths[read] / in_samples[read]
        return max(1, int(np.floor(full.min() + 1e-9) if stop == "first" else np.ceil(full.max() - 1e-9)))

    @property
    def weights(self) -> list[float]:
        """The shares that were set or scheduled last; their sum is 1. Assign new ones to change the mixture."""
        return [weight / WHOLE for weight in self._pending or self._changes[-1][1]]

    @weights.setter
    def weights(self, weights: Any) -> None:
        self._pending = _whole(_checked("weights", self._in_order("weights", weights), len(self._sizes)))

    def schedule(self, changes: Iterable[tuple[int, Any]], linear: bool = False, replace: bool = False) -> None:
        """Sets shares that will apply from fixed places of the order on.

        Args:
            changes: pairs (k, weights): these weights apply from index number k of the mixture on. k counts from the
                start of the first epoch.
            linear: between two of these places, the weights change linearly, in steps of 256 indices.
            replace: forget what was scheduled before for places that were not computed yet.

        Raises:
            ValueError: two changes have the same k, or index number k was computed before. Up to 4,096 indices are
                computed at once, so it was perhaps not drawn yet.
        """
        drawn = max(self._newest.step, self._least)
        try:
            pairs = [(step, weights) for step, weights in changes]
        except (TypeError, ValueError) as error:
            right = "must be pairs (k, weights), such as [(20_000, [0.7, 0.3])]"
            raise bad_argument("changes", changes, right) from error
        new: dict[int, Weights] = {}
        for step, weights in pairs:
            right = f"{drawn} indices were computed already, so it must be an int >= {drawn}"
            shares = _checked("weights", self._in_order("weights", weights), len(self._sizes))
            if check_int("k", step, drawn, right) in new:
                raise bad_argument("k", step, "two changes have this place; for a jump, pass k and k + 1")
            new[int(step)] = _whole(shares)
        check_flags(linear=linear, replace=replace)
        if linear and len(new) < 2:
            right = "linear=True changes the weights from one place to another; pass at least two"
            raise bad_argument("changes", changes, right)
        places = sorted(new)
        ramps = {start: (end, new[end]) for start, end in pairwise(places)} if linear else {}
        forgotten = {step for step in self._scheduled if replace and step >= drawn}
        rest = {step: None if replace else self._ramp_at(step) for step in places}
        self._changes = _with_changes([change for change in self._changes if change[0] not in forgotten], new)
        self._scheduled = self._scheduled - forgotten | frozenset(new)
        self._set_ramps({**rest, **ramps})

    @property
    def drawn(self) -> list[SourceStats]:
        """What was drawn of each dataset since the first epoch, by all ranks together.

        A loader draws batches before it delivers them, and a `PackingSampler` draws whole windows. At the end of an
        epoch, the numbers are those of what was delivered.
        """
        before = self._known_before(self._drawn)
        drawn = self._steps(before.step, self._drawn)
        stats = []
        parts = zip(self._sources, before.counts, before.tokens, self._names or repeat(None), strict=False)
        for source, samples, tokens, name in parts:
            indices = source.own(drawn)
            samples, tokens = samples + len(indices), tokens + int(source.tokens(indices).sum())
            known = None if source.lengths is None else tokens
            stats.append(SourceStats(samples, samples / source.length, known, name))
        return stats

    def __len__(self) -> int:
        return self._count

    @short_repr
    def __repr__(self) -> str:
        sources = [f"{len(self._sizes)} datasets"] if self._names is None else map(str, self._names)
        return call(self, *sources, f"weights={_shown(self.weights)}", *arguments(num_samples=self._count))

    def order(self, epoch: int) -> Order:
        first = epoch * self._count

        def read(part: slice) -> Integers:
            return self._steps(first + part.start, first + part.stop)[:: part.step]

        def change_from(offset: int) -> bool:
            if self._pending is None or offset >= self._count:
                return False
            self._change(first + offset, self._pending)
            return True

        def saved(offset: int) -> dict[str, Any]:
            about = {"given": list(self._shares_given), **self._changes_as_fields()}
            return {**about, "checkpoint": _saved(self._known_before(first + offset))}

        return Computed(read, change_from, saved)

    def reading(self, epoch: int) -> Order:
        order, first, reached = self.order(epoch), epoch * self._count, 0

        def read(part: slice) -> Any:
            nonlocal reached
            reached = max(reached, min(part.stop, self._count))  # the last ranks may repeat the first indices
            self._drawn = first + reached
            return order[part]

        def changed(offset: int) -> bool:
            nonlocal reached
            if not change_from(order, offset):
                return False
            reached = offset
            return True

        return Computed(read, changed, partial(saved_of, order))

    def keep_first(self, count: int) -> None:
        """No change may be scheduled for the first `count` indices of the next pass, since they were drawn before."""
        self._least = max(self._least, self.epoch * self._count + count)

    def _steps(self, start: int, stop: int) -> Integers:
        """The indices of these steps."""
        parts = [np.empty(0, np.int64)]
        while start < stop:
            before = self._before(start)
            indices = self._computed.get(before.step)
            if indices is None:
                indices = self._advance(before).indices
            parts.append(indices[start - before.step : stop - before.step])
            start += len(parts[-1])
        return np.concatenate(parts)

    def _change(self, step: int, weights: Weights) -> None:
        """Makes weights apply from a step on, until the next change that was scheduled."""
        kept = [change for change in self._changes if change[0] < step or change[0] in self._scheduled]
        rest = self._ramp_at(step)
        self._changes = _with_changes(kept, {step: weights})
        self._set_ramps({step: rest})
        self._checkpoints = {known: self._checkpoints[known] for known in self._checkpoints if known <= step}
        self._computed, self._pending = {}, None

    def _set_ramps(self, new: Mapping[int, tuple[int, Weights] | None]) -> None:
        """Sets the ramps that start at some changes, or removes them."""
        ramps, steps = {**self._ramps, **new}, {step for step, _ in self._changes}
        self._ramps = {step: ramp for step, ramp in ramps.items() if ramp is not None and step in steps}

    def _ramp_at(self, step: int) -> tuple[int, Weights] | None:
        """Where the shares change to linearly from this step on."""
        ramp = self._ramps.get(self._change_at(step)[0])
        return None if ramp is None or ramp[0] <= step else ramp

    def _change_at(self, step: int) -> tuple[int, Weights]:
        """The last change at this step or before it."""
        return self._changes[bisect_right([start for start, _ in self._changes], step) - 1]

    @property
    def _newest(self) -> MixtureCheckpoint:
        return self._known_before(MOST)

    def _known_before(self, step: int) -> MixtureCheckpoint:
        """The last known checkpoint at this step or before it."""
        found = max((known for known in self._checkpoints if known <= step), default=0)
        return self._checkpoints.get(found, self._start)

    def _before(self, step: int) -> MixtureCheckpoint:
        """The checkpoint from which the step is computed."""
        found = self._known_before(step)
        while step >= self._end(found.step):
            found = self._advance(found).after
        return found

    def _end(self, step: int) -> int:
        """The end of the steps that are computed at once from a checkpoint on, all with the same shares."""
        following, ramp = next((change for change, _ in self._changes if change > step), MOST), self._ramp_at(step)
        if ramp is None:
            return min((step // _AT_ONCE + 1) * _AT_ONCE, following)
        return min((step // _AT_ONCE_LINEAR + 1) * _AT_ONCE_LINEAR, following, ramp[0])

    def _weights_at(self, step: int) -> Weights:
        """The shares from a step on, where steps start that are computed at once."""
        start, weights = self._change_at(step)
        end, last = self._ramps.get(start, (start, weights))
        if step >= end:
            return last
        between = [
            before + (after - before) * (step - start) // (end - start)
            for before, after in zip(weights, last, strict=True)
        ]
        between[between.index(max(between))] += WHOLE - sum(between)
        return tuple(between)

    def _advance(self, before: MixtureCheckpoint) -> Advanced:
        """Computes the steps from a checkpoint on, and keeps the checkpoint after them."""
        count = self._end(before.step) - before.step
        advanced = self._mixer.advance(before, self._weights_at(before.step), count)
        step = advanced.after.step
        known = [(place, self._checkpoints[place]) for place in self._checkpoints if place != step]
        apart = [(place, checkpoint) for place, checkpoint in known[:-_KEPT] if place % _AT_ONCE == 0]
        self._checkpoints = dict([*apart[-_KEPT:], *known[-_KEPT:], (step, advanced.after)])
        self._computed = dict([*self._computed.items(), (before.step, advanced.indices)][-2:])
        return advanced

    def identity(self) -> dict[str, Any]:
        orders = None if self._given is None else [_identity_of(source.sampler) for source in self._sources]
        return {**super().identity(), "orders": orders}

    def check_fits(self, dataset: Any, ranks: int) -> None:
        """See `OrderedSampler`."""
        documents = getattr(dataset, "documents", dataset)  # those of a PackedDataset
        if not hasattr(documents, "__len__"):
            return
        sizes, starts = _sizes_in(documents), np.cumsum([0, *self._sizes])
        if starts[-1] != sum(sizes) or (len(sizes) > 1 and not np.isin(starts, np.cumsum([0, *sizes])).all()):
            what = f"this MixtureSampler mixes datasets of {self._sizes} samples, but the dataset has {sizes}"
            raise ValueError(f"sampler: {what}; pass the dataset as the sources of the sampler")
        names = getattr(documents, "names", None)
        if isinstance(names, list) and names != self._names and set(names) == set(self._names or ()):
            what = f"the dataset joins {names}, and this MixtureSampler has {self._names}"
            raise ValueError(f"sampler: {what}; pass the dataset as the sources of the sampler")

    def _changes_as_fields(self) -> dict[str, Any]:
        changes = [[step, list(weights)] for step, weights in self._changes]
        pending = None if self._pending is None else list(self._pending)
        ramps = [[step, end, list(weights)] for step, (end, weights) in sorted(self._ramps.items())]
        return {"changes": changes, "scheduled": sorted(self._scheduled), "linear": ramps, "pending": pending}

    def _plan_from(self, step: int) -> set[Any]:
        """What is scheduled from a step on."""
        changes = [change for change in self._changes if step <= change[0] in self._scheduled]
        return {(*change, self._ramps.get(change[0])) for change in changes}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        load_rest, count = super().loading(state), len(self._sizes)
        given = _weights_in(field(state, "given", PATH), count, f"{PATH}given")
        changes = _changes_in(state, count)
        scheduled, ramps = _scheduled_in(state, changes), _ramps_in(state, changes, count)
        pending = field(state, "pending", PATH)
        if pending is not None:
            pending = _weights_in(pending, count, f"{PATH}pending")
        loaded = _loaded(state, count)

        def load() -> None:
            load_rest()
            if self._given is None:
                self._set_sources()  # the seeds of the orders derive from that of this sampler, which may have changed
            here, plan = self.weights, self._plan_from(loaded.step)
            self._changes, self._scheduled, self._ramps, self._pending = changes, scheduled, ramps, pending
            if given != self._shares_given and self.weights != here:
                warn(
                    f"weights={_shown(here)} of this MixtureSampler differ from {_shown(self.weights)} in the state, "
                    "which apply from now on; for others, set the attribute `weights` after the state is loaded"
                )
            elif not plan <= self._plan_from(loaded.step):
                warn(
                    "the schedule of this MixtureSampler differs from that in the state, which applies from now on; "
                    "for another one, call schedule(..., replace=True) after the state is loaded"
                )
            self._checkpoints, self._computed = {loaded.step: loaded}, {}
            self._least, self._drawn = self._end(loaded.step), loaded.step

        return load


def _shown(weights: Sequence[float]) -> str:
    return f"[{', '.join(f'{weight:.3g}' for weight in weights)}]"


def _size(name: str, source: Any) -> int:
    if isinstance(source, (str, bytes, os.PathLike)):
        raise bad_argument(name, source, "it is a path or a name: pass a dataset, such as TokenDataset(path)")
    size = source if isinstance(source, (int, np.integer)) and not isinstance(source, bool) else None
    try:
        size = int(len(source) if size is None else size)
    except TypeError:
        right = "must be a dataset with a length, or its number of samples"
        raise bad_argument(name, source, right) from None
    return check_int(f"len({name})", size, 1, "it has no samples; remove it")


def _lengths_of(name: str, source: Any, unit: Unit) -> Any:
    try:
        return known_lengths(source)
    except AttributeError as error:
        if unit == "samples":
            return None
        right = "unit='tokens' needs the lengths of its samples; pass a TokenDataset, or unit='samples'"
        raise bad_argument(name, type(source).__name__, f"{right} ({error})") from None


def _sizes_in(dataset: Any) -> list[int]:
    """The numbers of samples of the datasets that a dataset joins, one after another."""
    parts: Any = getattr(dataset, "datasets", None)
    joins = isinstance(parts, (list, tuple)) and all(hasattr(part, "__len__") for part in parts)
    if not joins or sum(len(part) for part in parts) != len(dataset):  # such as columns that are read side by side
        return [len(dataset)]
    return [size for part in parts for size in _sizes_in(part)]


def _identity_of(sampler: Any) -> dict[str, Any]:
    """The identity of the order of a source; its weights are fixed, since the state of a mixture has none of them."""
    weights = {"weights": sampler.weights_checksum} if isinstance(sampler, WeightedSampler) else {}
    return {**identity_of(sampler), **weights}


def _shares(amounts: list[float], weights: Any, temperature: float | None, epochs: Any) -> NDArray[np.float64]:
    sizes = np.array(amounts, np.float64)
    if weights is not None:
        return _checked("weights", weights, len(sizes))
    if epochs is not None:
        return _scaled(_checked("epochs", epochs, len(sizes), scaled=False) * sizes)
    if temperature is not None and not is_positive(temperature):
        raise bad_argument("temperature", temperature, "must be a number > 0")
    return _scaled((sizes / sizes.max()) ** (1 / float(temperature or 1)))


def _checked(name: str, values: Any, count: int, scaled: bool = True) -> NDArray[np.float64]:
    right = f"pass {count} numbers >= 0, one for each dataset, and at least one number > 0"
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise bad_argument(name, values, right) from error
    if numbers.shape != (count,) or not np.isfinite(numbers).all() or (numbers < 0).any() or not numbers.any():
        raise bad_argument(name, values, right)
    return _scaled(numbers) if scaled else numbers


def _scaled(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same numbers, divided by their sum."""
    scaled: NDArray[np.float64] = numbers / numbers.sum()
    return scaled


def _whole(shares: NDArray[np.float64]) -> Weights:
    """Shares whose sum is 1 as ints whose sum is `WHOLE`; no share above 0 becomes 0."""
    whole = [max(1, round(share * WHOLE)) if share > 0 else 0 for share in shares.tolist()]
    whole[whole.index(max(whole))] += WHOLE - sum(whole)
    return tuple(whole)


def _with_changes(changes: Iterable[tuple[int, Weights]], new: Mapping[int, Weights]) -> _Changes:
    return tuple(sorted({**dict(changes), **new}.items()))


def _saved(checkpoint: MixtureCheckpoint) -> dict[str, Any]:
    return {"step": checkpoint.step, **{name: list(getattr(checkpoint, name)) for name in _SUMS}}


def _loaded(state: Mapping[str, Any], count: int) -> MixtureCheckpoint:
    value = field(state, "checkpoint", PATH)
    if not isinstance(value, Mapping) or set(value) != {"step", *_SUMS}:
        raise bad_state(f"{PATH}checkpoint", value, f"must have a step, {', '.join(_SUMS)}")
    for name in _SUMS:
        balances = name == "balances"  # of documents with as many tokens as a state may count
        most = WHOLE * MOST if balances else MOST
        _ints(value[name], count, f"{PATH}checkpoint.{name}", None if balances else 0, most)
    (step,) = _ints([value["step"]], 1, f"{PATH}checkpoint.step", 0)
    if sum(value["counts"]) != step:
        raise bad_state(f"{PATH}checkpoint.counts", value["counts"], f"their sum must be the step, {step}")
    return MixtureCheckpoint(step, *(tuple(value[name]) for name in _SUMS))


def _changes_in(state: Mapping[str, Any], count: int) -> _Changes:
    value, last = field(state, "changes", PATH), -1
    changes: list[tuple[int, Weights]] = []
    for change in value if isinstance(value, list) and value else [None]:
        if not isinstance(change, list) or len(change) != 2 or type(change[0]) is not int or change[0] <= last:
            raise bad_state(f"{PATH}changes", value, "must be a list of [step, weights], in the order of the steps")
        if not changes and change[0] != 0:
            raise bad_state(f"{PATH}changes", value, "the first change must be at step 0")
        last = change[0]
        changes.append((last, _weights_in(change[1], count, f"{PATH}changes")))
    return tuple(changes)


def _scheduled_in(state: Mapping[str, Any], changes: _Changes) -> frozenset[int]:
    steps, known = field(state, "scheduled", PATH), {step for step, _ in changes}
    if not isinstance(steps, list) or any(type(step) is not int or step not in known for step in steps):
        raise bad_state(f"{PATH}scheduled", steps, "must be a list of steps in `changes`")
    return frozenset(steps)


def _ramps_in(state: Mapping[str, Any], changes: _Changes, count: int) -> _Ramps:
    value, known = field(state, "linear", PATH), {step for step, _ in changes}
    ramps: dict[int, tuple[int, Weights]] = {}
    for ramp in value if isinstance(value, list) else [None]:
        right = "must be a list of [step, end, weights], with steps in `changes`, and ends after them"
        if not isinstance(ramp, list) or len(ramp) != 3 or not {*map(type, ramp[:2])} == {int}:
            raise bad_state(f"{PATH}linear", value, right)
        step, end, weights = ramp
        if step not in known or not step < end <= MOST:
            raise bad_state(f"{PATH}linear", value, right)
        ramps[step] = end, _weights_in(weights, count, f"{PATH}linear")
    return ramps


def _weights_in(value: Any, count: int, name: str) -> Weights:
    weights = _ints(value, count, name, 0)
    if sum(weights) != WHOLE:
        raise bad_state(name, value, f"weights must add up to {WHOLE}")
    return tuple(weights)


def _ints(values: Any, count: int, name: str, least: int | None, most: int = MOST) -> list[int]:
    right = f"must be a list of {count} ints" + ("" if least is None else f" >= {least}")
    if not isinstance(values, list) or len(values) != count:
        raise bad_state(name, values, right)
    for value in values:
        if type(value) is not int or abs(value) > most or (least is not None and value < least):
            raise bad_state(name, values, right)
    return values
