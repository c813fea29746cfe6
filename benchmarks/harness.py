"""The harness: a topic yields tables, whose rows are measured in rounds and printed.

A round measures each row once, so that all rows see the same load of the machine. Every second round goes through the
rows in reverse order. A cell shows the median of the rounds, and in parentheses the least and the most.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .report import markdown

Figures = Mapping[str, float]  # by column
Measure = Callable[[], Figures]


@dataclass(frozen=True)
class Table:
    """A table: what is measured, and how it is printed.

    Attributes:
        title: the line above the table.
        rows: for each row, the function that measures it once; or a text that says why it cannot be measured. A round
            without figures does not count.
        columns: for each column, the function that makes a text of a figure.
        base: the row with which the others are compared: a last column shows their ratios to it in the same round. The
            ratios are those of the first column.
        warm_up: number of rounds that are not counted.
        rounds: number of rounds, instead of those that the user asks for.
    """

    title: str
    rows: Mapping[str, Measure | str]
    columns: Mapping[str, Callable[[float], str]]
    base: str = ""
    warm_up: int = 0
    rounds: int | None = None


@dataclass(frozen=True)
class Topic:
    """What `python -m benchmarks NAME` measures.

    Attributes:
        run: yields tables, which are measured and printed, and texts, which are printed. Its argument has the values of
            the options: `rounds`, `workers`, `names` and the topic's own.
        rounds: default number of rounds.
        names: the names from which the user may choose some; all of them by default.
        options: default value and meaning of each option that only this topic has.
        packages: packages whose versions are printed.
    """

    run: Callable[[Namespace], Iterator[Table | str]]
    rounds: int = 3
    names: Collection[str] = ()
    options: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    packages: Sequence[str] = ()


def in_rounds(rows: Mapping[str, Measure], rounds: int, warm_up: int = 0) -> dict[str, list[Figures]]:
    """Measures the rows in turn, and returns the figures of each row in each counted round."""
    found: dict[str, list[Figures]] = {name: [] for name in rows}
    for number in range(warm_up + rounds):
        for name in list(rows)[:: 1 if number % 2 == 0 else -1]:
            figures = rows[name]()
            if number >= warm_up:
                found[name].append(figures)
    return found


def text_of(table: Table, rounds: int) -> str:
    """Measures a table, and returns it in Markdown."""
    rows = {name: row for name, row in table.rows.items() if not isinstance(row, str)}
    found = in_rounds(rows, table.rounds or rounds, table.warm_up)
    heading = ["", *table.columns, *([f"relative to {table.base}"] if table.base else [])]
    lines = []
    for name, figures in found.items():
        line = [name]
        for column, text in table.columns.items():
            line.append(_cell([each[column] for each in figures if each], text))
        if table.base:
            first = next(iter(table.columns))
            pairs = zip(figures, found.get(table.base, []), strict=False)
            line.append(_cell([own[first] / its[first] for own, its in pairs if own and its], "{:.2f}".format))
        lines.append(line)
    notes = "\n".join(f"- {name}: {row}" for name, row in table.rows.items() if isinstance(row, str))
    return "\n\n".join(part for part in (table.title, markdown(heading, lines), notes) if part)


def _cell(figures: Sequence[float], text: Callable[[float], str]) -> str:
    if not figures:
        return "-"
    least, most = text(min(figures)), text(max(figures))
    return f"{text(median(figures))} ({least} to {most})" if least != most else least
