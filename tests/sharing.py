"""Ranks that share workers: each is a forked child, and tells what it has read."""

import contextlib
import errno
import multiprocessing
import os
import socket
import subprocess
import traceback
from itertools import count

from conftest import eventually, is_running

import gluonloader as gl

_numbers = count()


def new_name():
    """A name by which no other loader shares."""
    return f"node:test {os.getpid()} {next(_numbers)}"


class Rank:
    """A forked child that calls `read(rank, *arguments)`; its answer is what that returns or raises."""

    def __init__(self, rank, read, *arguments):
        self._answer, end = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=self._run, args=(end, read, rank, *arguments))
        self.process.start()
        end.close()

    def _run(self, end, read, *arguments):
        self._answer.close()
        try:
            answer = read(*arguments)
        except BaseException as error:
            traceback.print_exc()
            answer = error
        end.send(answer)

    @property
    def pid(self):
        return self.process.pid

    def answer(self):
        """What the child has returned; raises what it has raised. None if it has died."""
        answer = None
        with contextlib.suppress(EOFError):
            answer = self._answer.recv()
        self.process.join()
        self._answer.close()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def over_ranks(number, read, *arguments):
    """What `read(rank, *arguments)` returns on each of several ranks at the same time."""
    ranks = [Rank(rank, read, *arguments) for rank in range(number)]
    return [rank.answer() for rank in ranks]


def loader_of(rank, number, name, dataset, **arguments):
    """The loader of a rank; without a name, it has the same batches, and no workers."""
    ranks = gl.Ranks(rank, number, share=name)
    options = {"batch_size": 4, "num_workers": 2 if name else 0, "seed": 1, "timeout": 60, "ranks": ranks}
    return gl.DataLoader(dataset, **{**options, **arguments})


@contextlib.contextmanager
def full_queue(address):
    """Within the block, a socket has this name that accepts no connection, and takes no other one into its queue."""
    with contextlib.ExitStack() as sockets:

        def new():
            return sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))

        listener = new()
        listener.bind(address)
        listener.listen(0)
        while True:
            one = new()
            one.setblocking(False)
            if one.connect_ex(address) == errno.EAGAIN:
                break
        yield listener


def lists(loader):
    return [batch.tolist() for batch in loader]


def stop(pid):
    """Stops a process for a moment."""
    subprocess.Popen(["sh", "-c", f"kill -STOP {pid}; sleep 0.1; kill -CONT {pid}"], stderr=subprocess.DEVNULL)


def nothing_left(pids):
    """Whether all these processes end soon."""
    return eventually(lambda: not any(is_running(pid) for pid in pids))
