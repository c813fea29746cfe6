"""The process of a server: how it starts, and what it tells the ranks if it cannot start or must end."""

from __future__ import annotations

import base64
import multiprocessing
import os
import select
import signal
import socket
import stat
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ... import frameworks
from ...lengths import length_if_known
from ...wire.descriptors import receive
from ...wire.ends import track_end
from ...wire.greeting import MESSAGE_BYTES
from ...wire.names import peer
from ...work.task import Job
from ..lanes.messages import RequestReader
from ..lanes.remote import encode_error, shorten_error
from ..process.main_script import explain_missing, import_main
from ..process.mapped_job import MappedJob, read_job
from .dataset_in_server import DatasetInServer
from .fingerprint import fingerprint
from .messages import Broken, Facts, RankWelcome, send
from .server import WorkerServer

QUEUE: Final = 1024  # ranks that wait for the server

_ERROR_BYTES: Final = 32 * 1024  # of a pickled error; as base64 it fits into a message
_CONNECTING_S: Final = 5.0  # how long the rank that starts a server may take to connect
_GPUS: Final = "/dev/nvidia"


def serve(job: Job | None, facts: Facts) -> None:
    """Runs in the server process, which does nothing else.

    Args:
        job: the inherited job; None if it comes through the lane.
        facts: what the `RankHello` of each rank must contain.
    """
    process: Any = multiprocessing.current_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the ranks end, and the server ends with them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # SIGTERM ends the server, also if the first rank has a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.setsid()  # so that signals to the process group of the first rank do not reach the server
    starter: socket.socket = process.lane
    starter.setblocking(True)
    if job is not None:
        _replace_connections(keep=starter.fileno())
        frameworks.enter_worker()
    received = receive(starter, MESSAGE_BYTES, 2)
    if not received.data:  # the first rank is gone
        raise SystemExit(1)
    (hello,) = RequestReader().read(received.data)
    listener = track_end(socket.socket(fileno=received.descriptors[0]))
    listener.listen(QUEUE)  # again, so that the peer of a rank that connects now is this process
    listener.setblocking(False)
    server, built = None, threading.Event()
    threading.Thread(target=_watch, args=(starter.fileno(), built), name="gluonloader-watch", daemon=True).start()
    try:
        if job is None:
            job = _read_job(MappedJob(received.descriptors[1], hello.size, hello.length), process.main)
        job, welcome = _build(job)
        built.set()
        server = WorkerServer(job, listener, starter, welcome, facts)
        server.run()
    except BaseException as error:
        if server is None:
            _await_starter(starter, listener)
        _tell_of(error, listener, [] if server is None else server.connections)
        raise SystemExit(1) from None
    finally:
        if server is not None:
            server.close()


def _watch(starter: int, built: threading.Event) -> None:
    """Ends the server if its starter goes away while the dataset is built; a rank that waits then starts another one.

    When the dataset is built, the server notices that by itself.
    """
    poll = select.poll()
    poll.register(starter, 0)  # hang-up is reported even if no event is requested
    poll.poll()
    if not built.is_set():
        os._exit(1)


def _replace_connections(keep: int) -> None:
    """Replaces the sockets, pipes and GPUs of the first rank, which are inherited, by /dev/null.

    As long as the server holds them, the peers of that rank, its launcher and the driver of the GPU would not notice
    its end. They are not closed: Python objects still refer to these descriptors and may close them, and the number
    could belong to another file then.
    """
    with open(os.devnull, "r+b", buffering=0) as null:
        for name in os.listdir("/proc/self/fd"):
            descriptor = int(name)
            with suppress(OSError):  # it is the descriptor of the folder that is listed here
                mode = os.fstat(descriptor).st_mode
                is_connection = stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or _is_gpu(descriptor)
                if is_connection and descriptor > 2 and descriptor != keep:
                    os.dup2(null.fileno(), descriptor, inheritable=False)


def _is_gpu(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").startswith(_GPUS)


def _read_job(mapped: MappedJob, main: Mapping[str, str]) -> Job:
    """The job that the first rank has pickled; `main` is its main script, see main_script.py."""
    if main:
        import_main(main)
    try:
        return read_job(mapped)
    except AttributeError as error:
        explain_missing(error)
        raise
    finally:
        os.close(mapped.fd)


def _build(job: Job) -> tuple[Job, RankWelcome]:
    """The job with its dataset, and what ranks need to know of the dataset if it was built here."""
    if not isinstance(job.dataset, DatasetInServer):
        return job, RankWelcome(os.getpid())
    dataset = job.dataset.build()
    return replace(job, dataset=dataset), RankWelcome(os.getpid(), length_if_known(dataset), fingerprint(dataset))


def _tell_of(error: BaseException, listener: socket.socket, connections: Iterable[socket.socket]) -> None:
    """Tells all ranks of the error with which the server ends, also those that wait for an answer."""
    who = f"the server of the workers (pid {os.getpid()})"
    data = encode_error(error, who)
    data = data if len(data) <= _ERROR_BYTES else shorten_error(data, _ERROR_BYTES)
    message = Broken(who, base64.b64encode(data).decode())
    for connection in connections:
        _tell(connection, message)
    with suppress(OSError):  # there are no more
        while True:
            _tell(listener.accept()[0], message)


def _tell(connection: socket.socket, message: Broken) -> None:
    with suppress(OSError):  # that rank is gone
        if peer(connection).uid == os.geteuid():
            send(connection, message)


def _await_starter(starter: socket.socket, listener: socket.socket) -> None:
    """Waits until the rank that has started this server has connected, or is gone: it connects a moment later."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(starter, 0)  # hang-up is reported even if no event is requested
    poll.poll(1000 * _CONNECTING_S)
