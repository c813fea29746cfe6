"""Finds the arguments of `DataLoader` that are best for a dataset, by measuring."""

from .plot import check_path
from .trial import Trial
from .tuner import Tuning, tune
