"""`message`: the decorator of frozen dataclasses that carry values from one part of this library to another.

For type checkers it is `dataclasses.dataclass`, so they refuse an assignment to a field. At run time nothing refuses
it, and all messages share one `__repr__`, `__eq__` and `__hash__`. `dataclass` would make these methods for each class,
which took a tenth of the time of `import gluonloader`, and an object would take 0.1 us more for each field. The classes
of what users get are frozen at run time, too.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

__all__ = ["message"]

if TYPE_CHECKING:
    from dataclasses import dataclass as message
else:

    def message(*, frozen, eq=True, **options):
        def decorated(cls):
            made = dataclass(cls, repr=False, eq=False, **options)
            if "__repr__" not in vars(cls):
                made.__repr__ = _repr
            if eq:
                made.__eq__, made.__hash__ = _eq, _hash
            return made

        return decorated


def _values(message: Any) -> tuple[Any, ...]:
    return tuple([getattr(message, field.name) for field in fields(message)])


def _repr(message: Any) -> str:
    shown = [f"{field.name}={getattr(message, field.name)!r}" for field in fields(message) if field.repr]
    return f"{type(message).__qualname__}({', '.join(shown)})"


def _eq(message: Any, other: object) -> bool:
    return _values(message) == _values(other) if type(message) is type(other) else NotImplemented


def _hash(message: Any) -> int:
    return hash(_values(message))
