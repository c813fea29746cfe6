"""A mutation: one small fault that is put into a copy of the package, to see whether the tests notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """A text of one file, and what replaces it.

    Attributes:
        name: what is wrong afterwards.
        file: relative to the package.
        old, new: `old` must be in the file exactly once.
        note: the name of the NOTE whose invariant it breaks; "" if it breaks none.
    """

    name: str
    file: str
    old: str
    new: str
    note: str = ""

    def apply(self, package: Path) -> None:
        """Changes the file.

        Raises:
            ValueError: the file does not contain the text exactly once.
            SyntaxError: the changed file is not Python, so that any test would notice it.
        """
        path = package / self.file
        text = path.read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} contains the text {count} times, not once:\n{self.old}")
        changed = text.replace(self.old, self.new)
        compile(changed, self.file, "exec")
        path.write_text(changed)
