"""Imports torch, or raises an error that says what to install."""

from __future__ import annotations

from .. import frameworks

frameworks.named("torch")  # if torch is not installed, this raises an error that says what to do

import torch  # noqa: E402
from torch.utils import data  # noqa: E402
from torch.utils.data import DataLoader as TorchDataLoader  # noqa: E402  `install` replaces the name in `data`
from torch.utils.data import dataloader as torchs  # noqa: E402
from torch.utils.data._utils import collate, worker  # noqa: E402
from torch.utils.data._utils.pin_memory import pin_memory  # noqa: E402

__all__ = ["TorchDataLoader", "collate", "data", "pin_memory", "torch", "torchs", "worker"]
