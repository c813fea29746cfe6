"""Imports Gluon; if that fails, the error says what to do."""

from __future__ import annotations

from .. import frameworks

frameworks.named("mxnet")  # raises the error that says what to do

import mxnet as mx  # noqa: E402
from mxnet.gluon import data  # noqa: E402
from mxnet.gluon.data import dataloader, dataset, sampler, vision  # noqa: E402

__all__ = ["data", "dataloader", "dataset", "mx", "sampler", "vision"]
