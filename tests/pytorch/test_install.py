"""`gluonloader.torch.install`, and programs that `python -m gluonloader.torch` runs."""

import gc
import importlib
import logging
import sys

import pytest
from script_ends import ENDS, run_in

from .sides import OURS, THEIRS, torch

data = torch.utils.data
install, uninstall = (getattr(importlib.import_module("gluonloader.torch"), name) for name in ("install", "uninstall"))

# `install` warns of the names and classes of other tests in this process. The programs below run with `-W error`.
pytestmark = pytest.mark.filterwarnings("ignore:torch's DataLoader was imported or subclassed:RuntimeWarning")


@pytest.fixture(autouse=True)
def uninstalled():
    gc.collect()  # deletes classes that a test has derived from torch's loader, since install would warn of them
    yield
    uninstall()


def loaders():
    """All names of loaders in the modules of torch and torchdata, as they are now."""
    packages = ("torch", "torchdata")
    modules = [name for name in sys.modules if name.partition(".")[0] in packages and sys.modules[name] is not None]
    return {
        (name, key): value
        for name in modules
        for key, value in vars(sys.modules[name]).items()
        if issubclass(type(value), type) and issubclass(value, THEIRS)
    }


def test_install_replaces_the_names_and_uninstall_restores_each_of_them():
    before = loaders()
    assert install().__enter__() is None
    assert data.DataLoader is data.dataloader.DataLoader is OURS
    uninstall()
    assert loaders() == before
    assert data.DataLoader is data.dataloader.DataLoader is THEIRS


def test_stateful_loaders_of_torchdata_are_replaced_and_restored():
    theirs = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    with install():
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader as Same

        assert StatefulDataLoader is Same is OURS
    from torchdata.stateful_dataloader import StatefulDataLoader

    assert StatefulDataLoader is theirs
    assert not issubclass(theirs, OURS)


def test_install_is_a_context_manager_and_restores_after_an_error():
    before = loaders()
    with pytest.raises(KeyError), install():
        {}["of the user"]
    assert loaders() == before


def test_a_second_install_changes_nothing_and_an_uninstall_too_many_does_nothing():
    before = loaders()
    install()
    with install():
        pass
    assert data.DataLoader is OURS
    uninstall()
    uninstall()
    assert loaders() == before


def test_install_logs_the_replaced_names_at_level_info(caplog):
    with caplog.at_level(logging.INFO, "gluonloader"), install():
        pass
    texts = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.INFO)
    assert "torch.utils.data.DataLoader, torch.utils.data.dataloader.DataLoader" in texts


def test_a_class_derived_after_install_uses_gluonloader(workers):
    with install():

        class Loader(data.DataLoader[int]):
            def __init__(self, dataset, batch_size):
                super().__init__(dataset, batch_size, num_workers=workers)

    assert issubclass(Loader, OURS)
    assert [batch.tolist() for batch in Loader([1, 2, 3], 2)] == [[1, 2], [3]]


def test_classes_and_names_from_before_install_are_in_one_warning(monkeypatch):
    class Derived(data.DataLoader):
        pass

    monkeypatch.setattr(sys.modules["script_ends"], "Loader", THEIRS, raising=False)
    with pytest.warns(RuntimeWarning, match=r"use torch's loader: .*Derived.*; call install\(\) before") as caught:
        install()
    assert "script_ends.Loader" in str(caught[0].message)
    assert len(caught) == 1
    assert list(Derived([1, 2])) == [1, 2]


def test_loaders_from_before_install_pass_for_what_they_are():
    before = THEIRS([1, 2])
    with install():
        assert isinstance(data.DataLoader([1]), THEIRS)
        assert list(before) == list(data.DataLoader([1, 2]))


@pytest.fixture
def program(tmp_path):
    """A function that runs `python *arguments` in a new folder with files; `name=text` adds the file `name`.py."""
    return lambda *arguments, **files: run_in(tmp_path, *arguments, **files)


SCRIPT = """
import sys
from torch.utils.data import DataLoader, Dataset
import beside

class Squares(Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return index * index

if __name__ == "__main__":
    import __main__
    assert __main__.Squares is Squares and vars(__main__) is globals()
    print(sys.argv, __name__, __file__, sys.path[0] == beside.__file__.rpartition("/")[0])
    for options in ({}, {"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
        loader = DataLoader(Squares(), 2, **options)
        print(type(loader).__module__, [batch.tolist() for batch in loader])
    sys.exit(3)
"""
RUNS = ["-W", "error", "-m", "gluonloader.torch", "--quiet"]


@pytest.mark.spawn
@pytest.mark.parametrize("command", [["folder/train.py"], ["-m", "folder.train"]], ids=["file", "module"])
def test_a_script_runs_in_the_same_environment_as_under_python(program, command):
    """Arguments, `__name__`, `__file__` and imports from its folder are the same; workers can unpickle its classes."""
    script = SCRIPT.replace("import beside", "from . import beside") if "-m" in command else SCRIPT
    arguments = ["--num-workers", "2", "-v", "-m", "-h", "--", "a b", ""]
    plain = program(*command, *arguments, **{"folder/train": script, "folder/beside": ""})
    ours = program(*RUNS, *command, *arguments)
    assert plain.returncode == 3, plain.stderr
    assert (ours.stderr, ours.returncode) == ("", 3)
    assert plain.stdout.splitlines()[-3:] == ["torch.utils.data.dataloader [[0, 1], [4]]"] * 3
    assert ours.stdout == plain.stdout.replace("torch.utils.data.", "gluonloader.torch.")


@pytest.mark.spawn
@pytest.mark.parametrize("end", ["error", "chained", "syntax", "interrupt", "kill", "atexit"])
def test_a_script_ends_as_under_python(program, end):
    """The exit status, the output and the traceback are the same; the traceback shows only the script."""
    ours, plain = program(*RUNS, "train.py", train=ENDS[end]), program("train.py")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.spawn
def test_the_error_if_no_script_can_be_run(program):
    none, missing, no_module = (
        program(*RUNS, *arguments) for arguments in ([], ["nowhere.py"], ["-m", "nowhere.train"])
    )
    assert none.returncode == missing.returncode == 2
    assert none.stderr.startswith("usage: python -m gluonloader.torch ")
    assert "nowhere.py" in missing.stderr.splitlines()[-1]
    assert "nowhere" in no_module.stderr.splitlines()[-1]
    without = program(*RUNS, "train.py", train="", torch="raise ModuleNotFoundError('hidden', name='torch')")
    assert without.returncode == 2
    assert without.stderr.endswith('torch is not installed; run pip install "gluonloader[torch]"\n')
    assert all("Traceback" not in done.stderr for done in (none, missing, without))


@pytest.mark.spawn
def test_verbose_prints_the_replaced_names_and_the_script_can_still_configure_logging(program):
    script = "import logging, sys\nlogging.basicConfig(stream=sys.stdout)\nlogging.warning('of the script')\n"
    done = program(*RUNS, "-v", "train.py", train=script)
    assert (done.returncode, done.stdout) == (0, "WARNING:root:of the script\n")
    assert "torch.utils.data.DataLoader" in done.stderr
