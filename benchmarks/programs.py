"""Programs that get something ready, wait, and then measure it once each time that they are asked to.

Program --"do a step"--> process that runs a generator function up to its next `yield`
        <---answer------
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from .processes import processes

_END_S: Final = 10.0  # a program that has not ended after this time is killed

T = TypeVar("T")


class Program:
    """A process that does one step after another.

    A step ends when the generator yields its answer. The process begins the first step by itself. When the program
    ends, the generator is closed, so its `with` blocks end, too.

    Args:
        steps: generator function that runs in the process.
        arguments: its arguments.
        method: "fork", so that the process shares the datasets of this one, or "spawn", so that it shares nothing.
        pauses: whether the process and its descendants are stopped between two steps, because some libraries poll for
            work all the time.
    """

    def __init__(
        self, steps: Callable[..., Iterator[Any]], *arguments: Any, method: str = "fork", pauses: bool = False
    ) -> None:
        context: Any = get_context(method)
        self._connection, far_end = context.Pipe()
        self._process = context.Process(target=_run, args=(far_end, steps, arguments))
        self._process.start()
        far_end.close()
        self._pauses = pauses

    @property
    def pid(self) -> int:
        """The pid of the process."""
        pid: int = self._process.pid
        return pid

    def begin(self) -> None:
        """Makes the process begin a step."""
        if self._pauses:
            self._signal(signal.SIGCONT)
        self._connection.send(True)

    def answer(self, limit_s: float = float("inf")) -> Any:
        """Waits for the end of a step, and returns its answer.

        Raises:
            TimeoutError: if the step takes longer than the limit.
            RuntimeError: if the process has ended.
        """
        while not self._connection.poll(min(1.0, limit_s)):
            limit_s -= 1
            if limit_s <= 0:
                raise TimeoutError("a program has not answered in time")
            # The workers of the process may keep the connection open after the process has ended.
            if not (self._process.is_alive() or self._connection.poll()):
                raise RuntimeError("a program has ended; read its output above")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("a program has ended; read its output above") from None
        if self._pauses:
            self._signal(signal.SIGSTOP)
        return answer

    def step(self) -> Any:
        """Makes the process do a step, and returns its answer."""
        self.begin()
        return self.answer()

    def end(self) -> None:
        """Closes the generator, and waits until the process has ended."""
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # the process has ended already
            self._connection.send(False)
        self._process.join(_END_S)
        if self._process.is_alive():
            self._signal(signal.SIGKILL)
            self._process.join()
        self._connection.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def _signal(self, number: int) -> None:
        for pid in processes(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _run(connection: Connection, steps: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    """Runs in the process."""
    generator: Any = steps(*arguments)
    for answer in generator:
        connection.send(answer)
        if not connection.recv():
            break
    generator.close()


def together(programs: Sequence[Program]) -> list[Any]:
    """Makes all programs do a step at the same time, and returns their answers."""
    for program in programs:
        program.begin()
    return [program.answer() for program in programs]


def in_new_program(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a new program, and returns what it returns."""
    with Program(_only_step, function, arguments, method="spawn") as program:
        result: T = program.answer()
        return result


def _only_step(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[Any]:
    yield function(*arguments)
