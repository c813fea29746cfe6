"""A server in a child process, which obeys commands, and consumers in others."""

import multiprocessing
import os
import signal
from itertools import count

from sharing import Rank

import gluonloader as gl

_numbers = count()


def new_server_name():
    return f"test.{os.getpid()}.{next(_numbers)}"


class Served:
    """A child process that serves a loader; call `stats`, `state_dict` or `close` of its `Server` by `ask`.

    Args:
        make: a function that returns the loader.
        state: what the loader loads first.
        options: for `serve`.
    """

    def __init__(self, make, name=None, state=None, **options):
        self.name = name or new_server_name()
        self._pipe, end = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=self._run, args=(end, make, state, options))
        self.process.start()
        end.close()
        error = self._pipe.recv()
        if error is not None:
            raise error

    def _run(self, end, make, state, options):
        self._pipe.close()
        with make() as loader:
            if state is not None:
                loader.load_state_dict(state)
            try:
                server = gl.serve(loader, self.name, **options)
            except Exception as error:
                end.send(error)
                return
            end.send(None)
            with server:
                while (command := end.recv()) is not None:
                    end.send(getattr(server, command)())
        end.send(None)

    @property
    def pid(self):
        return self.process.pid

    def ask(self, command):
        self._pipe.send(command)
        return self._pipe.recv()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.join()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.is_alive():
            self._pipe.send(None)
            self._pipe.recv()
        self.process.join()
        self._pipe.close()


def consumers(number, read, name, *arguments):
    """Children that call `read(number of the child, name, *arguments)`; their `answer()` is what it returns."""
    return [Rank(one, read, name, *arguments) for one in range(number)]


def read_epochs(one, name, epochs=1, **options):
    """All batches of some epochs, as lists."""
    with gl.attach(name, **options) as loader:
        return [[batch.tolist() for batch in loader] for _ in range(epochs)]
