"""What the doctor has found: one line of text, and a cure."""

from __future__ import annotations

from typing import Final, Literal

from ...messages import message

Level = Literal["ok", "note", "warning", "problem"]

LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "note", "ok")


@message(frozen=True, slots=True)
class Finding:
    """One result of the doctor.

    Args:
        name: what was checked, such as "cores".
        level: "problem": something will break; "warning": it works, but is slow or wrong in some cases; "note": worth
            knowing; "ok".
        text: what was found, with the values.
        cure: what to do; "" if there is nothing to do.
    """

    name: str
    level: Level
    text: str
    cure: str = ""
