"""The worker process: serves its lane until the lane closes.

    lane --Request--> slab (the task) --> Maker.make, into the slab --> reduce --Reply--> lane

It runs as the initializer of the loader's Pool and never returns to the pool's own task loop (NOTE [a pool that
serves] in thread.py). The dataset is a global, installed once.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import time
from array import array
from typing import Any, Final

import numpy as np

from ... import frameworks
from ...errors import SharedMemoryError
from ...memory import set_allocator
from ...memory.arena import Arena
from ...memory.reduce import Head, reduce
from ...memory.slab import HEADER, ROW, STARTED, TICKET, TOOK, Slab
from ...randomness import is_rng_in_use, seed_generators, set_current_seed, state_of_generators
from ...work.maker import Maker, Unsplit
from ...work.task import Job, Task
from .packed_job import PackedJob, load_job
from .records import Reply, Request, RequestReader, Status, Verb
from .remote import encode_error

__all__ = ["DUMP_SIGNAL", "encode_task", "serve_lane"]

DUMP_SIGNAL: Final = signal.SIGUSR2  # "write your stack to the notes"; handled in C, even while the GIL is held
_ORPHAN_S: Final = 1.0  # after the lane closes, a worker that is still busy has this long
_RECORDS_BYTES: Final = 4096
_DESCRIPTORS_BYTES: Final = socket.CMSG_SPACE(8 * 4)
_CLOEXEC: Final[int] = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ERROR_BYTES: Final = 32 * 1024  # always fits the smallest slab

_job: Job | None = None  # the worker global: dataset, batchify_fn and all


def _seed(seed: int) -> None:
    seed_generators(seed)
    frameworks.seed_generators(seed)
    set_current_seed(seed)


def _state() -> object:
    return state_of_generators(), frameworks.state_of_generators(), is_rng_in_use()


class _EndOfWorker(Exception):
    """The lane is closed: the loader was closed, or its process is gone."""


def encode_task(task: Task) -> bytes:
    """A task as it lies at the start of its slab; an array of indices as bytes, which are quicker to pickle."""
    work = task.work.tobytes() if isinstance(task.work, np.ndarray) else task.work
    return pickle.dumps((task.epoch, task.batch, task.seed, work), protocol=5)


def _decode_task(data: bytes) -> Task:
    epoch, batch, seed, work = pickle.loads(data)
    return Task(epoch, batch, seed, np.frombuffer(work, np.int64) if isinstance(work, bytes) else work)


def serve_lane(job: Job | None) -> None:
    """The pool's initializer, and the whole life of a worker.

    Args:
        job: what to do; None where it could not be inherited and comes through the lane.
    """
    global _job
    process: Any = multiprocessing.current_process()
    lane: socket.socket = process.lane
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it closes the lane
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _give_way()
    threading.Thread(target=_watch, args=(lane.fileno(),), name="gluonloader-watch", daemon=True).start()
    worker = _Worker(lane, process.slot)
    try:
        _job, maker = worker.start(job)
        with maker.at_work():
            worker.serve(maker)
    except (_EndOfWorker, BrokenPipeError, ConnectionResetError):
        pass
    raise SystemExit(0)  # not back into the pool's loop; atexit and multiprocessing finalizers run


def _give_way() -> None:
    """Lets the training thread keep its core when this worker is woken; see NOTE [spinning] in process.py."""
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass  # not Linux, or forbidden: a matter of speed only


def _watch(lane: int) -> None:
    """Ends the worker when the other end of its lane is gone, even in the middle of a long sample."""
    poll = select.poll()
    poll.register(lane, 0)  # no events asked for: hang-up is always told
    poll.poll()
    time.sleep(_ORPHAN_S)
    os._exit(1)


class _Worker:
    def __init__(self, lane: socket.socket, slot: int) -> None:
        self._lane, self._slot = lane, slot
        self._reader = RequestReader()
        self._requests: list[Request] = []  # read, not served; the next one last
        self._descriptors: list[int] = []  # received, in order; each belongs to the next record that is `new`
        self._slabs: dict[int, Slab] = {}

    def start(self, job: Job | None) -> tuple[Job, Maker]:
        """Takes the job and runs `worker_init_fn`; an error is told once, and then the worker waits for its end."""
        hello = self._next_request()
        notes = self._descriptors.pop(0)
        faulthandler.register(DUMP_SIGNAL, file=notes, all_threads=False)
        try:
            if job is None:
                fd = self._descriptors.pop(0)
                job = load_job(PackedJob(fd, hello.size, hello.length))
                os.close(fd)
            else:
                gc.freeze()  # inherited objects: the collector would write to them, and so copy their pages
            frameworks.enter_worker()  # only now: unpickling the job may have loaded some
            maker = Maker(job, self._slot, _seed, _state, copied=True)
            with maker.at_work():
                maker.start(hello.ticket)
        except BaseException as error:
            os.pwrite(notes, encode_error(error, f"worker {self._slot} (pid {os.getpid()}), while starting"), 0)
            self._reply(Reply(Status.BROKEN, size=os.fstat(notes).st_size))
            while True:
                self._next_request()
        self._reply(Reply(Status.READY))
        return job, maker

    def serve(self, maker: Maker) -> None:
        """Answers requests until the lane closes."""
        while True:
            request = self._next_request()
            if request.verb is Verb.DROP:
                dropped = self._slabs.pop(request.slab, None)
                if dropped is not None:
                    dropped.close()
            elif request.verb is Verb.SHOW:
                self._slab(request)
            else:
                self._reply(self._make(maker, request, self._slab(request)))

    def _make(self, maker: Maker, request: Request, slab: Slab) -> Reply:
        control = slab.control
        if control[TICKET] != request.ticket:
            return Reply(Status.SKIPPED, slab.number, request.ticket, slab.size)
        control[STARTED], began = request.ticket, time.perf_counter()
        start = HEADER + request.length
        task = _decode_task(slab.memory[HEADER:start])
        arena = Arena(slab, start, request.allowance)
        try:
            set_allocator(arena.empty)
            mark = self._marker(slab) if request.careful else None
            head = reduce(maker.make(task, mark), arena)
        except BaseException as error:
            who = f"in worker {self._slot} (pid {os.getpid()})"
            if isinstance(error, Unsplit):
                error.__traceback__ = None  # nobody reads it, and to format it means to read our own source
            return self._failed(request, slab, encode_error(error, who))
        if head is None:
            return Reply(Status.NO_ROOM, slab.number, request.ticket, slab.size, Head(0, arena.needed, 0))
        slab.control[TOOK] = int((time.perf_counter() - began) * 1e6)
        return Reply(Status.MADE, slab.number, request.ticket, slab.size, head)

    def _failed(self, request: Request, slab: Slab, error: bytes) -> Reply:
        # The batch is lost, so its room is the error's; a fresh arena ends where the old one began.
        arena = Arena(slab, HEADER + request.length, request.allowance)
        try:
            offset = arena.write(error)
        except SharedMemoryError:
            offset = None
        if offset is None:
            text = "an exception of the dataset whose pickle does not fit into shared memory"
            error = encode_error(RuntimeError(text), f"worker {self._slot}")[:_ERROR_BYTES]
            offset = Arena(slab, HEADER + request.length, slab.size).write(error) or 0
        return Reply(Status.FAILED, slab.number, request.ticket, slab.size, Head(offset, len(error), 0))

    def _marker(self, slab: Slab) -> Any:
        def mark(position: int) -> None:
            slab.control[ROW] = position + 1

        return mark

    def _slab(self, request: Request) -> Slab:
        if request.new:
            fd = self._descriptors.pop(0)
            self._slabs[request.slab] = Slab(request.slab, fd, request.size, populate=True)
        slab = self._slabs[request.slab]
        if slab.size < request.size:  # another worker, or the parent, has let it grow
            slab.map(request.size)
        return slab

    def _next_request(self) -> Request:
        while not self._requests:
            data, ancillary, _, _ = self._lane.recvmsg(_RECORDS_BYTES, _DESCRIPTORS_BYTES, _CLOEXEC)
            if not data:
                raise _EndOfWorker
            for _, _, descriptors in ancillary:
                self._descriptors += array("i", descriptors)
            self._requests = list(self._reader.read(data))[::-1]
        return self._requests.pop()

    def _reply(self, reply: Reply) -> None:
        self._lane.sendall(reply.encode())
