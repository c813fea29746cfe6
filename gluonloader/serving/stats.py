"""What a server and its consumers know of each other: who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import duration


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """A program that reads a served loader.

    Attributes:
        pid: of the program.
        batches: how many batches it has received.
        skipped: how many batches it has missed, since it was too slow (`slow="skip"`).
        kept: how many batches it has received and still keeps in shared memory.
        is_waited_for: the others wait for this consumer now.
    """

    pid: int
    batches: int
    skipped: int
    kept: int
    is_waited_for: bool


@dataclass(frozen=True, slots=True)
class ServerStats:
    """A server, and the programs that read from it.

    Attributes:
        name, pid: of the server.
        epoch: of the newest batch; None before the first.
        batches: how many batches the loader has made.
        copies: how many of them the server has copied into shared memory, since they did not lie there.
        made_s: seconds in which the server has waited for batches of its loader.
        idle_s: seconds in which the server needed no batch, since it waited for consumers.
        consumers: those that are attached.
    """

    name: str
    pid: int
    epoch: int | None
    batches: int
    copies: int
    made_s: float
    idle_s: float
    consumers: tuple[ConsumerStats, ...]

    def __str__(self) -> str:
        lines = [
            f"server {self.name!r} (pid {self.pid}): {self.batches:,} batches, {self.copies:,} copied",
            f"  waited for batches for {duration(self.made_s)}, for consumers for {duration(self.idle_s)}",
        ]
        for one in self.consumers:
            more = f", {one.skipped:,} skipped" if one.skipped else ""
            more += "; the others wait for it" if one.is_waited_for else ""
            lines.append(f"  consumer with pid {one.pid}: {one.batches:,} batches, keeps {one.kept}{more}")
        return "\n".join(lines)
