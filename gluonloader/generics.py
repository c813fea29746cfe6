"""The type variables of `Dataset[Sample]` and `DataLoader[Batch]`; where a type checker cannot know one, it is Any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers know this module, also where it is not installed
    from typing_extensions import TypeVar

    Sample = TypeVar("Sample", covariant=True, default=Any)
    Batch = TypeVar("Batch", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sample = TypeVar("Sample", covariant=True)
    Batch = TypeVar("Batch", covariant=True)
