"""Views of a dataset in which a sample that raises an error is a `Caught`, so that the rest of its batch can be read.

catching(dataset)[index] --> the sample, or Caught(error, index)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from ..dataset.bulk import read_by, settled
from ..declared import is_async
from ..errors import SharedMemoryError, as_exception
from ..indices import as_list
from ..interrupts import from_signal_handler
from ..messages import message
from ..randomness import CurrentBatch, current_batch
from .task import OnRow

# What `on_row` is called with instead of a row: while no sample is read, and while all samples are read in bulk again.
NO_ROW: Final = -1
BULK: Final = 1 << 40

GivenUp = Mapping[int, Exception]  # samples that killed their workers or hung, by slot; see `Tolerance`


@message(frozen=True, slots=True)
class Precautions:
    """What an attempt does about samples that kill or stop their worker.

    Attributes:
        on_row: called with the row of each sample before it is read, unless the samples are read in bulk or side by
            side; with `on_error` it is called with slots, and with NO_ROW before other code runs.
        careful: with `on_error`, call `on_row` for each sample in any case.
        given_up: with `on_error`, slots that are not read, and the errors that they count as.
    """

    on_row: OnRow | None = None
    careful: bool = False
    given_up: GivenUp = field(default_factory=dict)


NO_PRECAUTIONS: Final = Precautions()
_ERRORS: Final = (Exception, SystemExit)


@message(frozen=True, slots=True)
class Caught:
    """Takes the place of a sample that raised an error, until it is decided what happens to the sample."""

    error: Exception
    index: Any


def tolerable(error: BaseException, raiser: str) -> Exception:
    """The error as an exception of the sample; raises it again if the sample is not the cause."""
    quits_debugger = type(error).__name__ == "BdbQuit"  # not imported, which takes some ms
    if from_signal_handler(error) or isinstance(error, SharedMemoryError) or quits_debugger:
        raise error
    return as_exception(error, raiser)


def catching(dataset: Any, given_up: GivenUp | None = None, in_bulk: bool = False) -> Any:
    """A view of a map-style dataset in which samples that raise an error are a `Caught`.

    Args:
        given_up: the slots that are not read, and the errors of their samples.
        in_bulk: the view has `__getitems__`, too. If a bulk read raises an error, the samples are read one by one.
    """
    views = (_AsyncCatcher, _AsyncBulkCatcher) if is_async(dataset) else (_Catcher, _BulkCatcher)
    return views[in_bulk](dataset, given_up or {})


class _Catcher:
    def __init__(self, dataset: Any, given_up: GivenUp) -> None:
        self._dataset, self._given_up = dataset, given_up

    def __getitem__(self, index: Any) -> Any:
        if (known := self._error_of_row()) is not None:
            return Caught(known, index)
        try:
            return self._dataset[index]
        except _ERRORS as error:
            return self._caught(error, index)

    def _error_of_row(self) -> Exception | None:
        batch = current_batch() if self._given_up else None
        return None if batch is None or batch.row is None else self._given_up.get(batch.row)

    def _caught(self, error: BaseException, index: Any) -> Caught:
        return Caught(tolerable(error, f"dataset[{index!r}]"), index)


class _BulkCatcher(_Catcher):
    def __getitems__(self, indices: Any) -> Sequence[Any]:
        try:
            return read_by(self._dataset.__getitems__, indices)
        except _ERRORS as error:
            tolerable(error, "dataset.__getitems__")
        return [self[index] for index in _row_by_row(indices)]


class _AsyncCatcher(_Catcher):
    async def __getitem__(self, index: Any) -> Any:
        if (known := self._error_of_row()) is not None:
            return Caught(known, index)
        try:
            return await settled(self._dataset[index])
        except _ERRORS as error:
            return self._caught(error, index)
        except BaseException as error:
            if _is_cancelled_by_sample(error):
                return self._caught(error, index)
            raise


class _AsyncBulkCatcher(_AsyncCatcher):
    async def __getitems__(self, indices: Any) -> Sequence[Any]:
        try:
            samples: Sequence[Any] = await settled(read_by(self._dataset.__getitems__, indices))
            return samples
        except _ERRORS as error:
            tolerable(error, "dataset.__getitems__")
        return [await self[index] for index in _row_by_row(indices)]


def _row_by_row(indices: Any) -> Iterator[Any]:
    """The indices; while the sample of one is read, `get_rng` returns the generator of its row."""
    batch = current_batch() or CurrentBatch(0)
    for row, index in enumerate(as_list(indices)):
        batch.row = row
        yield index
    batch.row = None


def _is_cancelled_by_sample(error: BaseException) -> bool:
    """Whether something that the sample awaited was cancelled, and not the task that reads the sample."""
    import asyncio  # takes 50 ms, but not here, where it is imported already

    task: Any = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and hasattr(task, "cancelling") and not task.cancelling()


for _view in (_BulkCatcher, _AsyncBulkCatcher):
    vars(_view.__getitems__)["takes_arrays"] = True  # see `read_by`
