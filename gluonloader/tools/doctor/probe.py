"""The facts of a dataset and its loader: makes loaders with the user's factory and reads a few batches.

    the loader that the factory makes -------------> its options, what is pickled, what is open before workers start
    two loaders with 2 workers --------------------> equal batches?     this process must not have read samples before
    a loader without workers ----------------------> equal batches?
    a loader that stops, and one that resumes -----> equal batches?
    a worker that runs in this process (cost.py) --> what a sample costs, and draws of random numbers
    the same worker (everywhere.py) ---------------> the slowest of samples from everywhere in the epoch

dataset_findings.py judges the facts.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from ...comparing import Items, difference, items_of
from ...errors import TransportError, summary_of
from ...executors.process.inheritance import Inheritance
from ...executors.process.mapped_job import pickle_for
from ...loader import DataLoader
from ...messages import message
from ...progress import ProgressBar
from ...randomness import seed_restorable, set_current_batch
from ...ranks import local_ranks
from ..factory import FactoryError
from ..tuning.trial import IgnoredArgumentsError
from .cost import Cost, measure
from .everywhere import Everywhere
from .open_files import OpenFile, open_files
from .padding import Padding, padding_of
from .time_limit import OutOfTime, time_limit

_BATCHES: Final = 8  # that are read from each loader
_FIRST_SHARE: Final = 0.5  # of the time, for the first reading, in which workers import modules and fill caches
_READINGS: Final = 5  # after it, which share the rest
_EVERYWHERE: Final = 0.1  # of the time, for samples from everywhere, unless one of them is slow
ALL_BATCHES: Final = 5 * _BATCHES  # the maximum; both readings for `resumed` together have as many as one
LATE: Final = "no batch arrived in time"  # an error
_MOST_BYTES: Final = 1 << 28  # of batches that are kept, to be compared

Make = Callable[..., DataLoader[Any]]
# Arguments of the factory; if it or the loader refuses the first ones, the second ones, and so on.
_Choices = tuple[dict[str, Any], ...]
_AS_CONFIGURED: Final[_Choices] = ({}, {"num_workers": 2})  # a loader with a start method needs workers
_WITH_WORKERS: Final[_Choices] = ({"num_workers": 2}, {"num_workers": 0})
_WITHOUT_WORKERS: Final[_Choices] = (
    {"num_workers": 0},
    {"num_workers": 0, "start_method": None},
    {"num_workers": 0, "executor": None, "start_method": None},
    {"num_workers": 1},
)


@message(frozen=True, slots=True)
class ProbeOptions:
    """How a loader makes its batches; see `DataLoader`.

    Attributes:
        text: the `repr` of the loader.
        executor: the one that is used, also with "auto".
        ranks: how many ranks of this machine have such workers.
    """

    text: str
    executor: str
    num_workers: int
    start_method: str
    prefetch: int
    prefetch_given: bool
    memory_limit: int | None
    iterable: bool
    concurrency: int
    seed_given: bool
    ranks: int = 1


@message(frozen=True, slots=True)
class TwoLoaders:
    """Whether two loaders delivered equal batches.

    Attributes:
        workers, other_workers: how many workers each of them had.
        batches: how many were compared.
        difference: the first difference; "" if there is none.
        error: why a loader failed; "" if none did.
        is_late: the other loader delivered no batch in time, so nothing was compared.
        incomparable: why the batches cannot be compared; "" if they can.
    """

    workers: int
    other_workers: int
    batches: int
    difference: str = ""
    error: str = ""
    is_late: bool = False
    incomparable: str = ""


@message(frozen=True, slots=True)
class PickleError:
    """The text and the attributes of a `TransportError`."""

    text: str
    needs: str
    part: str
    reason: str
    cure: str

    @staticmethod
    def of(error: TransportError) -> PickleError:
        return PickleError(str(error), error.needs, error.part, error.reason, error.cure)


@message(frozen=True, slots=True)
class DatasetFacts:
    """What was found out about a dataset and its loader. None stands for what was not examined.

    Attributes:
        options: of the loader that the factory makes without arguments; None if that has failed. Then only the pickle
            and the cost are examined.
        error: why it has failed.
        warnings: of the library, while it made this loader.
        pickle_error: why the dataset and the functions cannot be pickled; None if they can.
        pickled_bytes: size of the pickle, and of the arrays beside it.
        object_bytes: size of the pickle alone; the objects take more memory.
        files: files and sockets that were opened before any sample was read.
        same: two loaders with the same number of workers.
        serial: a loader with workers, and a loader without.
        resumed: a loader that was not stopped, and a loader that resumed.
        padding: of batches of tokens; None if documents are not padded.
        cost: of a sample.
        cost_error: why there is no `cost`.
        everywhere: samples from everywhere in the epoch.
    """

    options: ProbeOptions | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()
    pickle_error: PickleError | None = None
    pickled_bytes: int = 0
    object_bytes: int = 0
    files: tuple[OpenFile, ...] = ()
    same: TwoLoaders | None = None
    serial: TwoLoaders | None = None
    resumed: TwoLoaders | None = None
    padding: Padding | None = None
    cost: Cost | None = None
    cost_error: str = ""
    everywhere: Everywhere | None = None


@message(frozen=True, slots=True)
class Configured:
    """A closed loader, None if none can be made; and the first facts."""

    loader: DataLoader[Any] | None
    facts: DatasetFacts


def configure(make: Make, before: Collection[OpenFile]) -> Configured:
    """Makes the loader that the user has configured, and closes it again.

    If that fails, it tries to make a loader without workers, so that the dataset can still be examined.

    Args:
        make: the factory.
        before: the files that were open before the factory was imported.
    """
    facts = DatasetFacts()
    loader: DataLoader[Any] | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            loader = _make_first(make, _AS_CONFIGURED)
            facts = replace(facts, options=_options_of(loader), padding=padding_of(loader, _BATCHES))
        except FactoryError:
            raise
        except Exception as error:
            facts = replace(facts, error=summary_of(error))
            if isinstance(error, TransportError):
                facts = replace(facts, pickle_error=PickleError.of(error))
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]
    facts = replace(facts, warnings=tuple(dict.fromkeys(texts)))
    if loader is None:
        try:
            loader = _make_first(make, _WITHOUT_WORKERS)
        except Exception:
            return Configured(None, facts)
    loader.close()
    known = {(file.descriptor, file.name) for file in before}
    files = [file for file in open_files() if (file.descriptor, file.name) not in known]
    facts = replace(facts, files=tuple(files))
    return Configured(loader, facts if facts.pickle_error else _pickled(loader, facts))


def _options_of(loader: DataLoader[Any]) -> ProbeOptions:
    workers, stats = loader.epochs.workers, loader.stats()
    return ProbeOptions(
        text=repr(loader),
        executor=stats.executor,
        num_workers=stats.num_workers,
        start_method=workers.options.start_method,
        prefetch=loader.prefetch,
        prefetch_given=workers.options.prefetch is not None,
        memory_limit=workers.options.memory_limit,
        iterable=workers.job.iterable,
        concurrency=workers.job.reading.concurrency,
        seed_given=loader.epochs.seed_given,
        ranks=local_ranks(1) if workers.options.meeting is None else 1,
    )


def _make_first(make: Make, choices: _Choices) -> DataLoader[Any]:
    """A loader with the first of these arguments that are accepted; raises the first error if none are."""
    first: ValueError | None = None
    for options in choices:
        try:
            return make(**options)
        except IgnoredArgumentsError:
            raise
        except ValueError as error:  # or a FactoryError
            first = first or error
    assert first is not None
    raise first


def _pickled(loader: DataLoader[Any], facts: DatasetFacts) -> DatasetFacts:
    inheritance = Inheritance()
    try:
        pickled = pickle_for("spawn", loader.epochs.workers.job, inheritance)
    except TransportError as error:
        return replace(facts, pickle_error=PickleError.of(error))
    finally:
        inheritance.close()
    objects = len(pickled.pickle)
    return replace(facts, pickled_bytes=objects + sum(map(len, pickled.buffers)), object_bytes=objects)


@dataclass(slots=True)
class _Reading:
    """The batches that one loader delivered, the number of its workers, and its state after the batches."""

    workers: int = 0
    batches: list[Items] = field(default_factory=list)
    state: Any = None
    is_late: bool = False
    error: str = ""


class Prober:
    """Reads batches of loaders.

    Args:
        make: the factory.
        seconds: that all reading together may take; not counted is the time in which code does not return to Python.
        progress: counts the batches.
    """

    def __init__(self, make: Make, seconds: float, progress: ProgressBar) -> None:
        self._make, self._progress = make, progress
        self._left_s, self._readings = seconds, _READINGS
        self._share_s = seconds * _FIRST_SHARE  # for the next reading
        self._everywhere_s = seconds * _EVERYWHERE

    def examine(self, loader: DataLoader[Any], facts: DatasetFacts) -> DatasetFacts:
        """Adds to the facts what reading batches shows. This process must not have read any sample before."""
        if facts.options is not None:
            first = self._read(_WITH_WORKERS)
            facts = replace(facts, same=_compare(first, first))
            if not first.error:
                # The second loader forks before this process reads samples, which may open files.
                second = self._read(_WITH_WORKERS)
                # The workers of the first loader made batches, so those of the second one only start slowly.
                late = TwoLoaders(first.workers, second.workers, 0, is_late=True)
                facts = replace(facts, same=late if second.error == LATE else _compare(first, second))
                serial = self._read(_WITHOUT_WORKERS)
                if serial.error != LATE:
                    facts = replace(facts, serial=_compare(first, serial), resumed=self._resume(serial))
        try:
            with self._limited():
                cost, everywhere = measure(loader, _BATCHES, self._progress.advance, self._everywhere_s)
            facts = replace(facts, cost=cost, everywhere=everywhere)
        except OutOfTime:
            facts = replace(facts, cost_error=LATE)
        except Exception as error:
            facts = replace(facts, cost_error=summary_of(error))
        return replace(facts, files=tuple(file.after_reading() for file in facts.files))

    def _resume(self, whole: _Reading) -> TwoLoaders | None:
        """Stops a loader in the middle of `whole`, and resumes with another one; None if there is no time for it."""
        half = len(whole.batches) // 2
        if not half:
            return None
        stopped = self._read(_WITHOUT_WORKERS, half)
        if stopped.is_late:
            return None
        if stopped.error:
            return _compare(whole, stopped)
        rest = self._read(_WITHOUT_WORKERS, len(whole.batches) - half, stopped.state)
        return None if rest.error == LATE else _compare(replace(whole, batches=whole.batches[half:]), rest, half)

    def _read(self, choices: _Choices, count: int = _BATCHES, state: Any = None) -> _Reading:
        """Reads the first batches of a new loader, or the batches after `state`."""
        reading = _Reading()
        try:
            seed_restorable(0)  # a loader without a seed draws one from NumPy's generator
            set_current_batch(None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # `configure` has recorded them
                with _make_first(self._make, choices) as loader, self._limited():
                    reading.workers = loader.num_workers
                    if state is not None:
                        loader.load_state_dict(state)
                    self._collect(islice(loader, count), reading)
                    reading.state = json.loads(json.dumps(loader.state_dict()))
        except OutOfTime:
            reading.is_late = True
            if not reading.batches:
                reading.error = LATE
        except (FactoryError, IgnoredArgumentsError):
            raise
        except Exception as error:
            reading.error = summary_of(error)
        return reading

    def _collect(self, batches: Iterator[Any], reading: _Reading) -> None:  # see NOTE [loops and try] in interrupts.py
        nbytes = 0
        for batch in batches:
            reading.batches.append(items_of(batch))
            nbytes += sum(getattr(value, "nbytes", 0) for _, _, value in reading.batches[-1])
            self._progress.advance(1)
            if nbytes > _MOST_BYTES and len(reading.batches) > 1:
                break

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Gives a reading its share of the time that is left."""
        start = time.monotonic()
        try:
            with time_limit(self._share_s):
                yield
        finally:
            self._left_s -= time.monotonic() - start
            self._share_s = self._left_s / self._readings
            self._readings = max(1, self._readings - 1)


def _compare(one: _Reading, other: _Reading, start: int = 0) -> TwoLoaders:
    """Compares the batches of two readings; the first of them has the number `start`."""
    expected, found = len(one.batches), len(other.batches)
    equal = TwoLoaders(one.workers, other.workers, min(expected, found))
    if other.error:
        return replace(equal, error=other.error)
    for number, pair in enumerate(zip(one.batches, other.batches, strict=False), start):
        try:
            differs = difference(*pair)
        except TypeError as error:
            return replace(equal, incomparable=str(error))
        if differs:
            return replace(equal, difference=f"batch {number}{differs}")
    if expected != found and not (one.is_late or other.is_late):
        return replace(equal, difference=f"{found} batches, expected {expected}")
    return equal
