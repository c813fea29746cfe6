"""`SparedGenerators`: seeds the caller's generators for a batch, but only those from which batches draw.

NOTE [spared generators]: promise P1 where the caller makes the batches itself. To seed the generators of Python and
NumPy takes 6 us, as long as to make a small batch, and most batches do not draw from them. For the first batch, all
generators are seeded. Those from which it did not draw are left as they are from then on, and `peek` looks at them
before and after each batch. If one has changed, the batch has drawn numbers of the caller. So it is thrown away, the
caller's numbers are restored, and the batch is made again with this generator seeded, as for all later batches. At most
two batches in the life of a loader are made twice in this way. It must be possible to read their samples twice: an
iterable dataset moves on when it is read, a function of `on_error` may count, and a generator that the dataset holds
has moved on. There, all generators are seeded for each batch. (A batch that draws, and then sets exactly the state that
the caller had, is not noticed.)

torch's generator is always seeded, since `torch.initial_seed()` shows its seed without a draw, and to look whether it
has changed takes as long as to seed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from . import numpy, python
from .held import Held
from .seeds import PreservedGenerators, loaded, set_current_seed

_SPARABLE: Final = (python, numpy)


class SparedGenerators(PreservedGenerators):
    """Saves the states of the caller's generators, seeds them in the block, and restores them after the block.

    Attributes:
        missed: whether the batch of the last block has drawn from a spared generator, so that it must be made again.
    """

    __slots__ = ("_drawing", "_looks", "_seeded", "_seeds", "_spared", "missed")

    def __init__(self) -> None:
        super().__init__()
        self.missed = False
        self._seeds: list[ModuleType] = []  # the generators that are seeded for the batch
        self._looks = False  # the next batch is the first one
        self._seeded: dict[ModuleType, Any] = {}  # what `peek` has returned after the seed of the first batch
        self._spared: dict[ModuleType, tuple[Any, Any]] = {}  # what `peek` and `save` have returned before the batch
        self._drawing = False  # the batch may have drawn since then

    def begin(self, held: Sequence[Held], can_repeat: bool) -> None:
        """Called before the first batch.

        Args:
            held: generators that are also saved and restored; another function seeds them.
            can_repeat: whether a batch may be made again. Otherwise all generators are seeded for each batch.
        """
        self._held, self._looks = held, can_repeat

    def seed(self, seed: int) -> None:
        """Seeds for one batch every global generator but those that are spared."""
        for generator in self._seeds:
            generator.seed(seed)
        if self._looks:
            self._seeded = {generator: generator.peek() for generator in _SPARABLE}
        set_current_seed(seed)

    def __enter__(self) -> None:
        self._seeds = [generator for generator in loaded() if generator not in self._spared]
        super().__enter__()
        for generator, (seen, _) in self._spared.items():
            if (now := generator.peek()) != seen:  # mostly the caller has not drawn since the last batch
                self._spared[generator] = now, generator.save()
        self.missed, self._drawing = False, True

    def __exit__(self, *exception: object) -> None:
        if self._looks:
            self._looks = False
            undrawn = [generator for generator, seen in self._seeded.items() if generator.peek() == seen]
            self._spared = dict.fromkeys(undrawn, (None, None))
            self._drawing = False
        self.restore()

    def restore(self) -> None:
        if self._drawing:
            for generator, (seen, state) in list(self._spared.items()):
                if generator.peek() != seen:
                    self.missed = True
                    self._saved.append((generator, state))
                    del self._spared[generator]
            self._drawing = False
        super().restore()

    def _globals(self) -> list[ModuleType]:
        return self._seeds
