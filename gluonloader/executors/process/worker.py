"""The worker process: it serves its lane until the lane closes.

    lane --Request--> task from the slab --> BatchMaker.make, into the slab --> reduce --Reply--> lane

It runs instead of the Pool's own task loop, which is slower, and loses the tasks of a worker that dies. The job, which
contains the dataset, is a global variable that is set once.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ... import frameworks
from ...memory.slab import DESCRIPTORS, SINCE, STARTED, TICKET, Slab
from ...memory.warm import LARGEST_IN_WORKER, keep_freed_memory
from ...randomness import seed_all
from ...work.core_wait import give_way
from ...work.maker import BatchMaker, Maker
from ...work.task import Job
from ...work.usage import process_resources
from ..lanes.answer import answer, note_row
from ..lanes.messages import Reply, Request, Status, Verb
from ..lanes.remote import encode_error
from .beside import Beside
from .lane_end import LaneClosed, LaneEnd, WorkerSlabs
from .main_script import explain_missing, import_main
from .mapped_job import MappedJob, read_job
from .rank_lanes import RankLanes

if TYPE_CHECKING:
    from ...work.streams import Streams

# "Write your stack to the log"; handled in C, even while another thread has the GIL.
DUMP_SIGNAL: Final = signal.SIGUSR2
_MOST_FILES: Final = 65536  # open files; some libraries look at each number up to the limit
_LEAST_SLABS: Final = 16
_ORPHAN_S: Final = 1.0  # how long a busy worker may live after its lane has closed

_job: Job | None = None  # the job of this worker: dataset, batchify_fn and all


def serve_lane(job: Job | None) -> None:
    """Runs in a worker process, which does nothing else.

    Args:
        job: the inherited job; None if the job comes through the lane.
    """
    global _job
    process: Any = multiprocessing.current_process()
    lane: socket.socket = process.lane
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent closes the lane
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    give_way()
    keep_freed_memory(LARGEST_IN_WORKER)
    worker = _WorkerEnd(lane, process.worker, process.main)
    threading.Thread(target=_watch, args=(worker, lane.fileno()), name="gluonloader-watch", daemon=True).start()
    try:
        _job, maker = worker.start(job)
        try:
            with maker.running():
                worker.serve(maker)
        finally:
            maker.close()
    except (LaneClosed, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException as error:
        worker.report(error)
        raise
    raise SystemExit(0)  # atexit and multiprocessing finalizers run


def _most_slabs() -> int:
    """How many slabs the worker keeps, so that half of the files that it may open are left for its dataset.

    The limit for this is raised as far as the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files, most = (_MOST_FILES if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard))
    if files < (wanted := min(most, _MOST_FILES)):
        with suppress(ValueError, OSError):  # macOS refuses what its limit allows, and a sandbox may refuse all
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            files = wanted
    return max(_LEAST_SLABS, files // 2 // DESCRIPTORS)


def _watch(worker: _WorkerEnd, lane: int) -> None:
    """Ends the worker when the other end of its lane is gone, even in the middle of a long sample."""
    poll = select.poll()
    poll.register(lane, 0)  # hang-up is reported even if no event is requested
    poll.poll()
    if worker.maker is not None:
        worker.maker.close()  # cancels what is awaited
    time.sleep(_ORPHAN_S)
    os._exit(1)


class _WorkerEnd:
    """A worker: starts, and answers the requests of its lane, or of the lanes of all ranks that share it."""

    def __init__(self, lane: socket.socket, number: int, main: Mapping[str, str]) -> None:
        self._slabs = WorkerSlabs(_most_slabs())
        self._lane, self._number, self._main = LaneEnd(lane, self._slabs), number, main
        self._who = f"in worker {number} (pid {os.getpid()})"
        self._log: int | None = None  # the lane's log
        self.maker: BatchMaker | None = None

    def start(self, job: Job | None) -> tuple[Job, BatchMaker]:
        """Imports the main script, receives the job and runs `worker_init_fn`.

        On an error, reports it and waits until the lane closes.
        """
        hello = self._lane.next()
        self._log = self._lane.descriptors.pop(0)
        faulthandler.register(DUMP_SIGNAL, file=self._log, all_threads=False)
        try:
            if self._main:
                import_main(self._main)
            if job is None:
                fd = self._lane.descriptors.pop(0)
                try:
                    job = read_job(MappedJob(fd, hello.size, hello.length))
                except AttributeError as error:
                    explain_missing(error)
                    raise
                os.close(fd)
                multiprocessing.current_process().inherited = ()  # type: ignore[attr-defined]  # closes its descriptors
            else:
                gc.freeze()  # the collector writes to the objects it visits, which would copy all inherited pages
            if job.reading.concurrency > 1:
                faulthandler.register(DUMP_SIGNAL, file=self._log, all_threads=True)  # replaces the registration above
            frameworks.enter_worker()  # only now: unpickling the job may have imported a framework
            maker = self.maker = BatchMaker(job, self._number, seed_all, process_resources)
            with maker.running():
                maker.start(hello.ticket)
                maker.find_generators()  # after worker_init_fn, which may have replaced some
        except BaseException as error:
            self.report(error)
            while True:
                self._lane.next()
        self._lane.reply(Reply(Status.READY))
        return job, maker

    def report(self, error: BaseException) -> None:
        """Writes to the log why this worker could not start, or why it ends before it could start on a batch."""
        if self._log is not None:
            os.pwrite(self._log, encode_error(error, f"worker {self._number} (pid {os.getpid()}), while starting"), 0)
            self._lane.reply(Reply(Status.BROKEN, size=os.fstat(self._log).st_size))

    def serve(self, maker: BatchMaker) -> None:
        """Answers requests until the lane closes."""
        try:
            self._serve(maker)
        finally:
            self._lane.end_streams()  # `_watch` ends this process if that takes too long

    def _serve(self, maker: BatchMaker) -> None:
        beside = Beside(maker, self.report) if maker.side_by_side > 1 else None
        if beside is not None:
            self._slabs.settle = beside.wait
        while True:
            request = self._lane.next()
            if request.verb is Verb.JOIN:
                self._serve_ranks(maker, beside)
            else:
                self._take(self._lane, request, maker, beside)

    def _serve_ranks(self, maker: BatchMaker, beside: Beside | None) -> None:
        """Answers the requests of all ranks until the lane closes; the lane of the first rank has arrived."""
        lanes = RankLanes(self._lane, self._slabs)
        lanes.add(self._lane.descriptors.pop(0))
        try:
            self._serve_lanes(lanes, maker, beside)
        finally:
            lanes.close()

    def _serve_lanes(self, lanes: RankLanes, maker: BatchMaker, beside: Beside | None) -> None:
        has_answered = False
        while True:
            lane, request = lanes.next()
            if request.verb is Verb.JOIN:
                lanes.add(lane.descriptors.pop(0))
                continue
            try:
                self._take(lane, request, maker, beside)
            except (BrokenPipeError, ConnectionResetError):
                lanes.drop(lane)
            if not has_answered and request.verb is Verb.MAKE:
                has_answered = True
                self._lane.reply(Reply(Status.SKIPPED))  # the server counts workers that end before their first answer

    def _take(self, lane: LaneEnd, request: Request, maker: BatchMaker, beside: Beside | None) -> None:
        if request.verb is Verb.DROP:
            lane.forget(request.slab)
        elif request.verb is Verb.END_STREAMS:
            lane.end_streams([request.ticket])
        elif (slab := lane.slab(request)) is None:
            lane.reply(Reply(Status.LOST, request.slab, request.ticket, request.size))
        elif beside is not None:
            beside.answer(request.careful, partial(self._answer, lane, request, slab))
        else:
            if maker.reads_streams and lane.streams is None:
                lane.streams = maker.new_streams()
            self._answer(lane, request, slab, maker)

    def _answer(self, lane: LaneEnd, request: Request, slab: Slab, maker: Maker) -> None:
        """Makes a batch and sends the reply."""
        lane.reply(self._make(maker, request, slab, lane.streams))

    def _make(self, maker: Maker, request: Request, slab: Slab, streams: Streams | None) -> Reply:
        control = slab.control
        if control[TICKET] != request.ticket:
            return Reply(Status.SKIPPED, slab.number, request.ticket, slab.size)
        control[SINCE] = time.monotonic_ns()
        control[STARTED] = request.ticket
        return answer(maker, request, slab, partial(note_row, slab), self._who, streams)
