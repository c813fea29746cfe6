"""Datasets of `torch.utils.data`: whose samples lie in tensors.

torch is not imported here: if the dataset is one of torch's, its package has been imported.
"""

from __future__ import annotations

from typing import Any


def tensors_of(dataset: Any) -> tuple[Any, ...] | None:
    """The tensors whose elements are the samples of a `TensorDataset`; None for any other dataset."""
    kind = type(dataset)
    if kind.__module__ != "torch.utils.data.dataset" or kind.__qualname__ != "TensorDataset":
        return None
    tensors: tuple[Any, ...] = dataset.tensors
    return tensors
