"""The threads of a worker process that make batches side by side, since each of them waits for its bulk read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from ...work.maker import BatchMaker, Maker
from ...work.side_by_side import ReadingThreads


class Beside:
    """Makes batches side by side.

    The worker writes STARTED of each batch that they make, so if the worker dies, each of these batches is made again
    in careful mode. A batch in careful mode is made while no other batch is made.

    Args:
        maker: makes the batches in careful mode, and has a maker for each thread.
        report: tells the main program of an error with which the worker ends.
    """

    def __init__(self, maker: BatchMaker, report: Callable[[BaseException], None]) -> None:
        self._maker, self._report = maker, report
        self._free: SimpleQueue[Maker] = SimpleQueue()  # a maker for each thread that makes no batch now
        for _ in range(maker.side_by_side):
            self._free.put(maker.beside())
        self._threads = ReadingThreads("gluonloader-bulk")
        self._threads.start(maker.side_by_side)

    def answer(self, careful: bool, make: Callable[[Maker], None]) -> None:
        """Starts to make a batch as soon as a thread is free.

        Args:
            careful: makes it here, as soon as no other batch is made.
            make: makes the batch and sends the reply.
        """
        if not careful:
            self._threads.run(partial(self._answer, self._free.get(), make))
            return
        self.wait()
        make(self._maker)

    def wait(self) -> None:
        """Waits until no batch is made; no other one starts meanwhile, since this is the thread that starts them."""
        makers = [self._free.get() for _ in range(self._maker.side_by_side)]
        for maker in makers:
            self._free.put(maker)

    def _answer(self, maker: Maker, make: Callable[[Maker], None]) -> None:
        try:
            with maker.running():
                make(maker)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the main thread ends the worker, or drops the lane
        except BaseException as error:
            self._report(error)
            os._exit(1)
        self._free.put(maker)
