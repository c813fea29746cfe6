"""`gluonloader.torch.install`, and programs that `python -m gluonloader.torch` runs."""

import importlib

import pytest
from installs import Dropin, EnvironmentTests, InstallTests, ProgramTests

from .sides import OURS, THEIRS, torch


class OfTorch(Dropin):
    ours, data, library, packages = (
        importlib.import_module("gluonloader.torch"),
        torch.utils.data,
        "torch",
        ("torch", "torchdata"),
    )
    names, theirs = ["DataLoader"], {"DataLoader": THEIRS}
    imports, loader = "from torch.utils.data import DataLoader, Dataset", "DataLoader"
    ways = '({}, {"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "spawn"})'


class TestInstall(OfTorch, InstallTests):
    def test_stateful_loaders_of_torchdata_are_replaced_and_restored(self):
        module = pytest.importorskip("torchdata.stateful_dataloader")
        theirs = module.StatefulDataLoader
        with self.ours.install():
            assert module.StatefulDataLoader is module.stateful_dataloader.StatefulDataLoader is OURS
        assert module.StatefulDataLoader is module.stateful_dataloader.StatefulDataLoader is theirs
        assert not issubclass(theirs, OURS)


class TestPrograms(OfTorch, ProgramTests, EnvironmentTests):
    pass
