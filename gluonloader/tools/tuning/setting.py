"""The arguments of `DataLoader` that `tune` varies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal

from ...messages import message

Executor = Literal["serial", "thread", "process"]

_SIMPLEST_FIRST: Final = ("serial", "thread", "process")


@message(frozen=True, slots=True)
class Setting:
    """A choice of arguments; those of `DataLoader` with the same names."""

    executor: Executor = "serial"
    num_workers: int = 0
    concurrency: int = 1
    prefetch: int | None = None
    start_method: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `DataLoader`, without those that are the default.

        >>> Setting("process", 2, concurrency=16).arguments
        {'num_workers': 2, 'concurrency': 16}
        """
        given: dict[str, Any] = {"num_workers": self.num_workers}
        if self.executor == "thread":
            given["executor"] = "thread"
        defaults = {field.name: field.default for field in fields(self)}
        for name in ("concurrency", "prefetch", "start_method"):
            if getattr(self, name) != defaults[name]:
                given[name] = getattr(self, name)
        return given

    @property
    def has_threads(self) -> bool:
        """Whether threads other than that of the program read samples in its process, or several ones in a worker."""
        return self.concurrency > 1 or self.executor == "thread"

    @property
    def effort(self) -> tuple[int, int, int, int, int]:
        """What the setting costs besides time; the smaller of two is simpler: fewer workers, and fewer arguments."""
        return (
            self.num_workers,
            _SIMPLEST_FIRST.index(self.executor),
            self.start_method is not None,
            self.concurrency,
            self.prefetch or 0,
        )


def text_of(arguments: Mapping[str, Any]) -> str:
    """Keyword arguments as Python writes them.

    >>> text_of({"num_workers": 2, "start_method": "spawn"})
    "num_workers=2, start_method='spawn'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
