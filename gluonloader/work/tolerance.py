"""What happens to samples that raise an error, unless `on_error` is "raise".

    dataset[index] raises ---> Caught ---> policy ---> Bad(error, value) ---> part ---> batchify_fn
    a transform of an iterable dataset raises ---> policy ---^                  +-----> BadSample, to the plan

A `Bad` takes the row of its sample until the batch is made. So no row, no chunk and no leftover depends on errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..batchify import Gathered
from ..declared import is_async
from ..errors import add_note, forget_variables, notes_of, text_of
from ..indices import Keys
from ..memory import for_samples
from ..messages import message
from ..randomness import CurrentBatch, batch_seed, current_batch, set_current_batch
from .caught import BULK, NO_ROW, Caught, GivenUp, Precautions, catching
from .info import BadSample
from .reading import Reader, reader_of
from .task import Job, Task, located

TRIES: Final = 10  # how many other samples "replace" tries
_LONGEST_TEXT: Final = 500  # characters of an error


class Skip:
    """The type of `gluonloader.SKIP`, which an `on_error` function returns to leave a sample out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "gluonloader.SKIP"

    def __reduce__(self) -> str:
        return "SKIP"  # pickles and copies are the same object


SKIP: Final = Skip()


@message(frozen=True, slots=True)
class Tolerated:
    """A batch in which some samples raised errors."""

    batch: Any
    errors: tuple[BadSample, ...]
    is_empty: bool  # all samples were left out, and there is no batch


@message(frozen=True, slots=True)
class Bad:
    """Takes the place of a sample until the batch is made."""

    error: str
    value: Any  # SKIP, or what the sample is replaced by


@message(frozen=True, slots=True)
class Parted:
    """The samples that make a batch, and those that raised an error."""

    samples: Sequence[Any]
    rows: Sequence[int]  # the rows of `samples` before samples were left out
    errors: tuple[BadSample, ...]


def part(task: Task, samples: Sequence[Any] | Gathered) -> Parted | None:
    """Replaces or removes each `Bad`; None if there is none."""
    if not isinstance(samples, list) or not any(type(sample) is Bad for sample in samples):
        return None
    errors = [
        BadSample(task.sample(row), bad.error, bad.value is SKIP) for row, bad in enumerate(samples) if type(bad) is Bad
    ]
    rows = [row for row, sample in enumerate(samples) if type(sample) is not Bad or sample.value is not SKIP]
    kept = [samples[row].value if type(samples[row]) is Bad else samples[row] for row in rows]
    return Parted(kept, rows, tuple(errors))


def describe_error(error: BaseException) -> str:
    """The type, the text and the notes of an error."""
    text = "; ".join([f"{type(error).__name__}: {text_of(error)}", *notes_of(error)])
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class Tolerance:
    """Reads the samples of a map-style dataset, and applies the policy to those that raise an error.

    A slot stands for one read of one sample, so that the main program can tell which read has killed a worker: slot
    `row` is the sample of that row, and slot `row + t * n` is the t-th other sample that is tried for it, in a batch of
    n samples. Slot BULK stands for a bulk read after all its samples were read one by one.

    Attributes:
        policy: see `on_error` of `Reading`.
        in_bulk: whether the dataset reads in bulk.
        reader: reads the samples; those that raise an error are a `Caught`.
    """

    def __init__(self, job: Job) -> None:
        self._job, self.policy = job, job.reading.on_error
        self.in_bulk, self._event_loop = hasattr(job.dataset, "__getitems__"), None
        if is_async(job.dataset):
            from .event_loop import EventLoop  # importing asyncio takes 50 ms

            self._event_loop = EventLoop()  # all readers share it, since the dataset may keep connections in it
        self.reader = reader_of(catching(job.dataset, in_bulk=self.in_bulk), job, True, self._event_loop)

    def read(
        self, task: Task, keys: Keys, precautions: Precautions, seed: Callable[[], None]
    ) -> Sequence[Any] | Gathered:
        """The samples, and a `Bad` for each sample that raised an error.

        Args:
            seed: seeds the random generators for this batch again.
        """
        return _TolerantRead(self, task, precautions).run(keys, seed)

    def view(self, given_up: GivenUp) -> Reader:
        """Reads samples one by one, without those that are given up."""
        return reader_of(catching(self._job.dataset, given_up), self._job, True, self._event_loop)

    def others(self, task: Task, row: int) -> Sequence[Any]:
        """The indices from which "replace" draws another sample for a row."""
        if self._job.reading.replaces_from_all:
            return range(len(self._job.dataset))
        return [index for other, index in enumerate(task.indices or []) if other != row]

    def read_one(self, index: Any) -> Any:
        dataset = catching(self._job.dataset)
        with for_samples():
            return dataset[index] if self._event_loop is None else self._event_loop.run(lambda: dataset[index])


class _TolerantRead:
    """Reads the samples of one batch.

    Args:
        tolerance: reads samples, and has the policy.
        task: the batch.
        precautions: see there.
    """

    def __init__(self, tolerance: Tolerance, task: Task, precautions: Precautions) -> None:
        self._tolerance, self._task = tolerance, task
        self._on_row, self._given_up = precautions.on_row, precautions.given_up
        self._is_careful = precautions.careful or bool(precautions.given_up)

    def run(self, keys: Keys, seed: Callable[[], None]) -> Sequence[Any] | Gathered:
        """The samples, and a `Bad` for each sample that raised an error; `seed` is that of `Tolerance.read`."""
        if self._is_careful:
            samples = self._read_one_by_one(keys, seed)
        else:
            samples = self._tolerance.reader.read(self._task, keys, self._on_row)
        if isinstance(samples, Gathered) and samples.has_others:
            samples = samples.samples()
        if isinstance(samples, list):
            # No variable refers to a `Caught` here: the traceback of its error refers to this frame, so they would keep
            # all samples of the batch in memory until the next garbage collection.
            for row in [row for row, sample in enumerate(samples) if type(sample) is Caught]:
                samples[row] = self._bad(row, samples[row])
        self._note(NO_ROW)
        return samples

    def _note(self, slot: int) -> None:
        if self._on_row is not None:
            self._on_row(slot)

    def _read_one_by_one(self, keys: Keys, seed: Callable[[], None]) -> Sequence[Any] | Gathered:
        samples = self._tolerance.view(self._given_up).read(self._task, keys, self._on_row)
        if not self._tolerance.in_bulk or self._given_up:
            return samples
        # No sample has killed this worker, so the death had another cause. The random numbers of the batch must be
        # those of a bulk read, which draws them from other generators.
        del samples
        self._note(BULK)
        seed()
        return self._tolerance.reader.read(self._task, keys, None)

    def _bad(self, row: int, caught: Caught) -> Bad:
        """Applies the policy to a sample."""
        text = describe_error(caught.error)
        forget_variables(caught.error)
        self._note(NO_ROW)  # so that the sample is not blamed if the user's function kills or stops its worker
        if self._tolerance.policy == "skip":
            return Bad(text, SKIP)
        before = current_batch()
        own = CurrentBatch(0 if before is None else before.seed)
        own.row = row  # `get_rng` returns the generator of this sample, always from its first number on
        try:
            set_current_batch(own)
            return Bad(text, self._replacement(row, caught))
        finally:
            set_current_batch(before)

    def _replacement(self, row: int, caught: Caught) -> Any:
        """What a sample is replaced by; SKIP if the user's function says so."""
        error, task, policy = caught.error, self._task, self._tolerance.policy
        try:
            if callable(policy):
                return decided(policy, error, caught.index, task.sample(row))
        except BaseException as failure:
            call = f"on_error for {task.sample(row)}"
            failure = located(failure, call, f"{call}, {task}")
            raise failure from error
        others = self._tolerance.others(self._task, row)
        value = self._other(row, others)
        if type(value) is Caught:
            why = f"{TRIES} others also raised errors" if others else "the batch has only this one"
            add_note(error, f'gluonloader: on_error="replace" found no other sample: {why}')
            error = located(error, task.sample(row), f"{task.sample(row)}, {task}")
            raise error
        return value

    def _other(self, row: int, others: Sequence[Any]) -> Any:
        """Another sample for this row, one of `others`; a `Caught` if none can be read."""
        task = self._task
        size, seed = len(task.indices or []), batch_seed(task.seed, task.epoch, task.batch)
        value: Any = Caught(LookupError("there is no other sample"), None)
        for number in range(1, TRIES + 1 if others else 0):
            slot = row + number * size
            if slot in self._given_up:
                continue
            self._note(slot)
            index = others[batch_seed(seed, row, number) % len(others)]
            value = self._tolerance.read_one(index)
            if type(value) is not Caught:
                break
        return value


def decided(policy: Callable[[Exception, Any], Any], error: Exception, sample: Any, name: str) -> Any:
    """What the user's function returns for a sample."""
    value = policy(error, sample)
    if value is None:
        right = "return gluonloader.SKIP to leave the sample out, or a value that takes its place"
        raise TypeError(f"on_error returned None for {name}, which raised {describe_error(error)}; {right}") from error
    return value
