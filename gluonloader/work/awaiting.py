"""Readers for datasets with `async def` methods, which are awaited on an event loop of the worker.

    task, keys ---> AwaitedSamples: await dataset[key], for several rows at a time  ---> samples
                +-> AwaitedBulk:    await dataset.__getitems__(keys)                ---> samples

`reader_of` in reading.py chooses the reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from ..dataset.bulk import read_by, settled
from ..indices import Keys, as_list
from ..randomness import CurrentBatch, current_batch, set_current_batch
from .event_loop import EventLoop
from .side_by_side import SharedRead
from .task import OnRow, Task, located_bulk, located_sample


class AwaitedSamples:
    """Awaits up to `concurrency` samples of a batch at the same time."""

    def __init__(self, dataset: Any, concurrency: int, event_loop: EventLoop | None) -> None:
        self._dataset, self._concurrency, self._event_loop = dataset, concurrency, event_loop or EventLoop()

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any]:
        indices, batch = as_list(keys), current_batch()
        shared = _AwaitedRead(self._dataset, indices, 0 if batch is None else batch.seed)
        tasks = 1 if on_row is not None else min(self._concurrency, len(indices))
        self._event_loop.run(lambda: shared.read_all(tasks, on_row))
        if (failed := shared.first_error()) is not None:
            row, error = failed
            raise located_sample(error, self._dataset, indices[row], task)
        return shared.samples

    def close(self) -> None:
        self._event_loop.close()


class AwaitedBulk:
    """Reads all samples of a task with one call, which is awaited."""

    def __init__(self, bulk: Callable[[Any], Any], event_loop: EventLoop | None) -> None:
        self._bulk, self._event_loop = bulk, event_loop or EventLoop()

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any]:
        try:
            samples = self._event_loop.run(lambda: self._await(keys))
        except BaseException as error:
            error = located_bulk(error, keys, task)
            raise error
        return cast("Sequence[Any]", samples)

    async def _await(self, keys: Keys) -> Any:
        return await settled(read_by(self._bulk, keys))

    def close(self) -> None:
        self._event_loop.close()


class _AwaitedRead(SharedRead):
    """The samples of one batch, while several tasks of an event loop await them."""

    def __init__(self, dataset: Any, indices: list[Any], seed: int) -> None:
        super().__init__(dataset, indices, seed)
        self._awaited: dict[int, asyncio.Task[None]] = {}  # by row

    async def read_all(self, count: int, on_row: OnRow | None) -> None:
        """Awaits the samples in `count` tasks; if this is cancelled, cancels these tasks."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._await_rows(on_row)) for _ in range(count)]
        try:
            await asyncio.wait(tasks)
        finally:
            self.stop()
            for task in tasks:
                task.cancel()

    async def _await_rows(self, on_row: OnRow | None) -> None:
        set_current_batch(batch := CurrentBatch(self._seed))  # in the context of this task
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while (row := self.take()) is not None and self.wants(row):
            batch.row, self._awaited[row] = row, task
            try:
                if on_row is not None:
                    on_row(row)
                self.samples[row] = await settled(self.read(row))
            except BaseException as error:
                self.fail(row, error)
                self._cancel_after(row)
            del self._awaited[row]

    def _cancel_after(self, failed: int) -> None:
        """Cancels the samples after one that has failed, since their errors would not be raised."""
        for row, task in self._awaited.items():
            if row > failed:
                task.cancel()
