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


# What a script may leave to its end, which comes with a text for `sys.exit`.
LEFT = """# -*- coding: latin-1 -*-
import atexit, sys, threading

class Named:
    def __del__(self):
        print("gone")

def f(x: int): ...

named, words = Named(), ["kept"]
print(f.__annotations__)
__builtins__.added = "by the script"
print(added)
threading.Thread(target=lambda: print("late")).start()
atexit.register(lambda: print(words))
sys.exit("text of the exit")
"""
# Ways in which a script may end.
ENDS = {
    "error": "def main():\n    raise ValueError('of the script')\n\nmain()\n",
    "chained": "try:\n    {}['x']\nexcept KeyError as error:\n    raise OSError(2, 'no file') from error\n",
    "syntax": "print(1\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "exit": LEFT,
}


class TestPrograms(OfTorch, ProgramTests, EnvironmentTests):
    @pytest.mark.parametrize("end", ENDS)
    def test_a_script_ends_as_under_python(self, program, end):
        """The exit status, the output and the traceback are the same; the traceback shows only the script."""
        ours, plain = program(*self.command(), "train.py", train=ENDS[end]), program("train.py")
        assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
