"""Converts the arrays of a batch to the framework that `output=` names, and pins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..errors import add_note, as_exception
from ..tree import children, refill
from .base import Framework, is_numeric, warn_once
from .find import named, owner

OUTPUTS: Final = ("numpy", "mxnet", "torch", "jax")

Leaf = Callable[[Any], Any]


def map_arrays(fn: Leaf, batch: Any, path: str = "") -> Any:
    """Returns the same containers with `fn(array)` in place of each array of NumPy or of a framework; those in which
    nothing changes are the same objects.

    Tuples, named tuples, lists, mappings and dataclasses are containers, as for `default_batchify`. An exception of
    `fn` gets a note that names the array's path in the batch.
    """
    kind = type(batch)
    if kind is np.ndarray or owner(kind) is not None:
        try:
            return fn(batch)
        except Exception as error:
            error = as_exception(error, "output")
            add_note(error, f"gluonloader: while output converted {path or 'the batch'}")
            raise error
    items = children(batch)
    if items is None:
        return batch
    mapped = [map_arrays(fn, item, path + step) for step, item in items]
    unchanged = all(new is item for new, (_, item) in zip(mapped, items, strict=True))
    return batch if unchanged else refill(batch, mapped)


def converter(output: str | Framework | Leaf) -> Leaf:
    """Returns the function that converts one array to the framework `output`; a function is returned as it is.

    Arrays of texts, times and objects, and structured arrays, stay NumPy arrays.
    """
    if callable(output):
        return output
    target = named(output) if isinstance(output, str) else output

    def convert(array: Any) -> Any:
        kind = type(array)
        if target.owns(kind) and kind is not np.ndarray:
            return array
        source = owner(kind)
        values = array if source is None else source.to_numpy(array)
        if values is None:
            raise TypeError(
                f"output={target.name!r}: {kind.__qualname__} is nested, sparse or quantized, has a gradient or is on "
                "a device; return dense arrays in host memory"
            )
        return target.from_numpy(values) if is_numeric(values.dtype) else array

    return convert


def pinner(device_id: int) -> Leaf:
    """Returns the function that moves one array to page-locked memory, from which copies to a device are faster."""

    def pin(array: Any) -> Any:
        framework = owner(type(array))
        if framework is not None:
            return framework.pin(array, device_id)
        warn_once("pin_memory=True: NumPy arrays stay in ordinary memory; also pass output='torch' or output='mxnet'")
        return array

    return pin
