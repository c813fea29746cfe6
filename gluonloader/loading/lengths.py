"""The length of a dataset, and a warning if an epoch has another number of samples."""

from __future__ import annotations

from typing import Any

from ..describe import class_name, counted
from ..errors import warn
from ..lengths import length_if_known


class LengthCheck:
    """Warns if the length of a dataset is not the number of samples of an epoch; at most once for each cause."""

    def __init__(self) -> None:
        self._compares_start = self._compares_end = True

    def at_start(self, dataset: Any, fixed: int | None, copied: int | None) -> None:
        """Compares the length with the length that counts, if that is fixed.

        Args:
            fixed: see `IndexSource`.
            copied: see `Workers`.
        """
        before = copied if fixed is None else fixed
        if before is None or not self._compares_start:
            return
        length = length_if_known(dataset)
        if length is None or length == before:
            return
        self._compares_start = False
        what = f"{class_name(dataset)} has {counted(length, 'sample', 'samples')} now"
        if fixed is None:
            text = f"{what}, but had {before:,} when the workers started, and they keep the copies that they got then"
        else:
            text = f"{what}, but had {before:,} when the loader was made, and each epoch still reads those"
        warn(f"{text}; to read the dataset as it is now, make a new DataLoader")

    def at_end(self, dataset: Any, samples: int | None) -> None:
        """Compares the length of an iterable dataset with the number of samples that it has yielded."""
        if samples is None or not self._compares_end:
            return
        length = length_if_known(dataset)
        if length is not None and samples > length:
            self._compares_end = False
            warn(
                f"{class_name(dataset)} yielded {samples:,} samples, but its length is {length:,}, so "
                "len(loader) is too small; return the right number from __len__, or remove __len__",
            )
