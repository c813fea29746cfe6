"""Tests of `install` and of `python -m` for both drop-ins; `tests/gluon` and `tests/pytorch` derive classes from these.

Each derived class has the attributes of `Dropin`.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def run_in(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Runs `python *arguments` in a folder with files; `name=text` adds the file `name`.py."""
    for name, text in files.items():
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    path = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{folder}"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | path, capture_output=True, text=True, timeout=50
    )


SCRIPT = """
import sys
{imports}
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
    for options in {ways}:
        loader = {loader}(Squares(), 2, **options)
        print(type(loader).__module__, [(batch.asnumpy() if hasattr(batch, "asnumpy") else batch).tolist()
                                        for batch in loader])
    sys.exit(3)
"""


class Dropin:
    """One of the two libraries.

    Attributes:
        ours: the module of gluonloader.
        data: the module whose names are replaced.
        library: its name in warnings.
        packages: those whose modules `install` changes.
        names: of the classes that are replaced in `data`.
        theirs: the library's loader.
        imports, loader: lines of a script, and the loader's name in it.
        ways: arguments of loaders, as text.
        warnings: options of Python for programs.
        hidden: files that programs find instead of packages.
    """

    ours: ModuleType
    data: ModuleType
    library: str
    packages: tuple[str, ...]
    names: list[str]
    theirs: dict[str, type]
    imports: str
    loader: str
    ways: str
    warnings: tuple[str, ...] = ()
    hidden: dict[str, str] = {}

    @pytest.fixture(autouse=True)
    def uninstalled(self):
        gc.collect()  # deletes classes that a test has derived from the library's loader, since install would warn
        yield
        self.ours.uninstall()

    @pytest.fixture
    def program(self, tmp_path):
        """A function that runs `python *arguments` in a new folder with files; `name=text` adds the file `name`.py."""
        return lambda *arguments, **files: run_in(tmp_path, *arguments, **{**self.hidden, **files})

    def attributes(self) -> dict[tuple[str, str], int]:
        """All classes and functions in the modules of the packages, as they are now."""
        modules = {name: module for name, module in sys.modules.items() if module is not None}
        return {
            (name, key): id(value)
            for name, module in modules.items()
            if name.partition(".")[0] in self.packages
            for key, value in vars(module).items()
            if callable(value)
        }

    def replaced(self) -> list[str]:
        """The names that are gluonloader's at the moment; those of modules inside of `data` must agree."""
        found = [name for name in self.names if getattr(self.data, name) is getattr(self.ours, name)]
        assert all(getattr(self.data, name) is self.theirs[name] for name in set(self.names) - set(found))
        assert self.data.dataloader.DataLoader is self.data.DataLoader
        return found

    def assert_restored(self, before: dict[tuple[str, str], int]) -> None:
        """All attributes are as before, and none is a class of gluonloader; modules may have been imported since."""
        now, ours = self.attributes(), {id(getattr(self.ours, name)) for name in self.names}
        assert [key for key, value in before.items() if now.get(key) != value] == []
        assert [key for key, value in now.items() if value in ours] == []

    def command(self) -> list[str]:
        return ["-W", "error", *self.warnings, "-m", self.ours.__name__, "--quiet"]

    def script(self, ways: str = "") -> str:
        return SCRIPT.format(imports=self.imports, loader=self.loader, ways=ways or self.ways)


@pytest.mark.filterwarnings("ignore:.*DataLoader was imported or subclassed:RuntimeWarning")  # by other tests
class InstallTests(Dropin):
    def test_install_replaces_the_names_and_uninstall_restores_each_attribute(self):
        before = self.attributes()
        for _ in range(2):
            assert self.ours.install().__enter__() is None
            once = self.attributes()
            assert self.replaced() == self.names
            self.ours.install()  # a second one changes nothing, nor does the end of its block
            with self.ours.install():
                pass
            assert self.attributes() == once
            self.ours.uninstall()
            assert self.replaced() == []
            self.ours.uninstall()  # one too many does nothing
            self.assert_restored(before)

    def test_install_is_a_context_manager_and_restores_after_an_error(self):
        before = self.attributes()
        with pytest.raises(KeyError), self.ours.install():
            {}["of the user"]
        self.assert_restored(before)

    def test_install_in_several_threads_at_once_is_undone_by_one_uninstall(self):
        before, hooks = self.attributes(), list(sys.meta_path)
        for _ in range(20):
            start = threading.Barrier(8)
            threads = [
                threading.Thread(target=lambda start=start: (start.wait(), self.ours.install())) for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert self.replaced() == self.names
            self.ours.uninstall()
            self.assert_restored(before)
            assert sys.meta_path == hooks

    def test_install_logs_the_replaced_names_at_level_info(self, caplog):
        with caplog.at_level(logging.INFO, "gluonloader"), self.ours.install():
            pass
        texts = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.INFO)
        assert f"{self.data.__name__}.DataLoader, " in texts
        assert f"{self.data.__name__}.dataloader.DataLoader" in texts

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_a_class_derived_after_install_uses_gluonloader(self, num_workers):
        with self.ours.install():

            class Loader(self.data.DataLoader):
                def __init__(self, dataset: Any, batch_size: int) -> None:
                    super().__init__(dataset, batch_size, num_workers=num_workers)

        assert issubclass(Loader, self.ours.DataLoader)
        assert [len(batch) for batch in Loader([1, 2, 3], 2)] == [2, 1]

    def test_classes_and_names_from_before_install_are_in_one_warning(self, monkeypatch):
        class Derived(self.data.DataLoader):
            pass

        monkeypatch.setattr(sys.modules[__name__], "Loader", self.data.DataLoader, raising=False)
        text = rf"use {self.library}'s loader: .*Derived.*; call install\(\) before"
        with pytest.warns(RuntimeWarning, match=text) as caught:
            self.ours.install()
        assert "installs.Loader" in str(caught[0].message)
        assert len(caught) == 1
        assert len(list(Derived([1, 2], 1))) == 2

    def test_loaders_from_before_install_pass_for_what_they_are(self):
        before = self.data.DataLoader([1, 2], 1)
        with self.ours.install():
            assert isinstance(self.data.DataLoader([1], 1), self.theirs["DataLoader"])
            assert list(map(str, before)) == list(map(str, self.data.DataLoader([1, 2], 1)))


@pytest.mark.spawn
class ProgramTests(Dropin):
    """What scripts print and how they end is tested in `tests/pytorch`, since both libraries have the same code for it.

    `tests/gluon/test_scripts.py` tests ends within an epoch.
    """

    def test_the_error_if_no_script_can_be_run(self, program):
        none, missing, asked, no_module = (
            program(*self.command(), *arguments) for arguments in ([], ["nowhere.py"], ["-h"], ["-m", "nowhere.train"])
        )
        usage = f"usage: python -m {self.ours.__name__} "
        assert (none.returncode, missing.returncode, asked.returncode) == (2, 2, 0)
        assert none.stderr.startswith(usage)
        assert usage in asked.stdout
        assert "nowhere.py" in missing.stderr.splitlines()[-1]
        assert "nowhere" in no_module.stderr.splitlines()[-1]
        name = self.packages[0]
        hidden = {name: f"raise ModuleNotFoundError('hidden', name='{name}')"}
        without = program(*self.command(), "train.py", train="", **hidden)
        assert without.returncode == 2
        assert without.stderr.endswith(f'{name} is not installed; run pip install "gluonloader[{name}]"\n')
        assert all("Traceback" not in done.stderr for done in (none, missing, asked, without))

    def test_verbose_prints_the_replaced_names_and_the_script_can_still_configure_logging(self, program):
        script = "import logging, sys\nlogging.basicConfig(stream=sys.stdout)\nlogging.warning('of the script')\n"
        done = program(*self.command(), "-v", "train.py", train=script)
        assert (done.returncode, done.stdout) == (0, "WARNING:root:of the script\n")
        assert f"{self.data.__name__}.DataLoader" in done.stderr


@pytest.mark.spawn
class EnvironmentTests(Dropin):
    """Scripts whose results are compared with those of the library's own loader."""

    @pytest.mark.parametrize("command", [["folder/train.py"], ["-m", "folder.train"]], ids=["file", "module"])
    def test_a_script_runs_in_the_same_environment_as_under_python(self, program, command):
        """Arguments, `__name__`, `__file__` and imports from its folder are the same; workers can unpickle classes."""
        script = self.script()
        if "-m" in command:
            script = script.replace("import beside", "from . import beside")
        arguments = ["--", "--num-workers", "2", "-v", "-m", "-h", "--", "a b", ""]
        plain = program(*command, *arguments, **{"folder/train": script, "folder/beside": ""})
        ours = program(*self.command(), *command, *arguments)
        assert plain.returncode == 3, plain.stderr
        assert (ours.stderr, ours.returncode) == ("", 3)
        assert plain.stdout.splitlines()[-2:] == [f"{self.data.__name__}.dataloader [[0, 1], [4]]"] * 2
        assert ours.stdout == plain.stdout.replace(f"{self.data.__name__}.", f"{self.ours.__name__}.")
