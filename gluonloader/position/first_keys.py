"""The first keys of a user's order, by which a resumed epoch is compared with the one that was saved.

No attribute of a user's sampler, of a function or of a list of indices says whether its order is the same as before. If
it is not, samples come twice or not at all after a resume. The keys before a position are drawn again anyway. So a
state contains a checksum of the first ones, and a resume compares it. That finds orders that are drawn at random each
time, and lists that were made again. It does not find keys that were added at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ..errors import bad_state, warn
from ..indices import COMPARED, checksum_of
from ..sampler.saved import FIXED, PATH
from ..state import field, int_field

_FIELD: Final = "first_keys"


class FirstKeys:
    """The first keys of an order.

    Args:
        sampler: yields them; the warning names it.
        saved: the state of the sampler that yielded the order before; None compares nothing.
    """

    def __init__(self, sampler: Any, saved: Mapping[str, Any] | None = None) -> None:
        self._sampler, self._is_resumed = sampler, saved is not None
        self._expected = None if saved is None else saved.get(_FIELD)
        self._checksums: list[int] = []  # of the first key, of the first two keys, and so on

    def noted(self, keys: Iterable[Any]) -> Iterator[Any]:
        """Yields the first ones of these keys; warns if they are not those that were saved."""
        self._checksums = []
        for count, key in enumerate(islice(keys, COMPARED), 1):
            self._note(count, key)
            yield key

    @property
    def is_empty(self) -> bool:
        """Whether no key was noted."""
        return not self._checksums

    def note(self, keys: Iterable[Any]) -> None:
        """Notes the first ones of these keys, without a pass."""
        deque(self.noted(keys), maxlen=0)

    def warn_of_end(self) -> None:
        """Warns that there are fewer keys than come before the position, if keys are compared."""
        if self._is_resumed:
            warn(
                f"sampler: this {_name_of(self._sampler)} ends before the position of the loaded state, so no "
                "batch of this epoch is left; pass the sampler that was saved"
            )

    def _note(self, count: int, key: Any) -> None:
        before = self._checksums
        if len(before) < count - 1:
            return  # a key before it cannot be compared
        if isinstance(key, (list, tuple)) or getattr(key, "ndim", 0) > 0:  # a batch, which may be large
            key = key[:COMPARED]
        checksum = checksum_of(key, before[-1] if before else 0)
        if checksum is None:
            return
        before.append(checksum)
        if self._expected is not None and count == self._expected["count"]:
            if before[-1] != self._expected["checksum"]:
                warn(_warning(self._sampler))
            self._expected = None

    def saved(self, count: int) -> dict[str, Any]:
        """What the state of a position after so many keys contains; nothing if they cannot be compared."""
        count = min(count, len(self._checksums))
        return {_FIELD: {"count": count, "checksum": self._checksums[count - 1]}} if count else {}


def are_known(sampler: Any) -> bool:
    """Whether the keys of a user's order can be read without a pass."""
    return type(sampler) in FIXED or getattr(sampler, "is_function", False)


def check_first_keys(saved: Mapping[str, Any]) -> bool:
    """Whether the state of a sampler contains first keys; raises a ValueError if they are wrong."""
    if _FIELD not in saved:
        return False
    fields, path = field(saved, _FIELD, PATH), f"{PATH}{_FIELD}."
    if not isinstance(fields, Mapping):
        raise bad_state(PATH + _FIELD, fields, "must be a dict")
    int_field(fields, "count", 1, path)
    int_field(fields, "checksum", 0, path)
    return True


def _name_of(sampler: Any) -> str:
    inner = getattr(sampler, "index_sampler", sampler)  # of the order of a loader of torch
    return type(getattr(inner, "sampler", inner) if inner is not sampler else sampler).__name__


def _warning(sampler: Any) -> str:
    name, lost = _name_of(sampler), "so samples come twice or not at all"
    if isinstance(sampler, FIXED):
        return (
            f"sampler: this {name} has other indices than the one that was saved, {lost}; pass the {name} that was "
            "saved. Ignore this if each rank has its own, and this state is that of another rank"
        )
    if are_known(sampler):
        return (
            f"sampler: this function returns another order than before the state was saved, {lost}; pass the function "
            "that was saved. Ignore this if each rank has its own, and this state is that of another rank"
        )
    return (
        f"sampler: this {name} yields another order than before the state was saved, {lost}; let its order depend "
        "only on a seed and set_epoch(epoch), or add state_dict() and load_state_dict(). Ignore this if each rank has "
        "its own order, and this state is that of another rank"
    )
