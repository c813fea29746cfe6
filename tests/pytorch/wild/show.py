"""What the programs of this folder print: a digest of each batch, so that two runs can be compared."""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def workers() -> int:
    """Seeds all generators, and returns the number of workers from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return int(parser.parse_args().workers)


def show(batch: Any) -> None:
    """Prints the digest of a batch: of its containers, types, dtypes, shapes and bytes."""
    print("batch", hashlib.sha1(b"".join(_parts(batch))).hexdigest()[:16], flush=True)


def _parts(value: Any) -> list[bytes]:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        return [f"{type(value).__name__} {array.dtype} {array.shape}".encode(), np.ascontiguousarray(array).tobytes()]
    if isinstance(value, Mapping):
        return [b"{", *(part for key in value for part in (repr(key).encode(), *_parts(value[key])))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__.encode(), *(part for item in value for part in _parts(item))]
    return [repr(value).encode()]
