"""Gluon, imported; and what to do where it cannot be."""

from __future__ import annotations

import numpy as np

from ..errors import MissingExtraError

try:
    import mxnet as mx
    from mxnet.gluon import data
    from mxnet.gluon.data import dataloader, dataset, sampler, vision
except ModuleNotFoundError as error:
    if error.name == "mxnet":
        raise MissingExtraError("mxnet") from error
    if error.name == "distutils":
        raise ImportError("MXNet needs distutils, which Python 3.12 removed: pip install setuptools") from error
    raise
except AttributeError as error:
    if "numpy" not in str(error).lower():
        raise
    raise ImportError(
        f"MXNet does not import with NumPy {np.__version__} ({error}); call gluonloader.mxnet.patch_numpy() before "
        "anything imports mxnet"
    ) from error

__all__ = ["data", "dataloader", "dataset", "mx", "sampler", "vision"]
