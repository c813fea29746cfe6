"""The global generator of Python's `random`, which takes the whole 64-bit seed."""

from __future__ import annotations

import random
from typing import Final

seed: Final = random.seed
save: Final = random.getstate
restore: Final = random.setstate
peek: Final = random.getstate
