"""`gluonloader.mxnet.install`, and programs that `python -m gluonloader.mxnet` runs."""

import gc
import importlib
import logging
import sys
import threading
from importlib.util import find_spec

import pytest
from script_ends import ENDS, run_in

import gluonloader

from .sides import GLUON, OURS, mx, needs_old_numpy

install, uninstall = OURS.install, OURS.uninstall

CLASSES = {
    "dataloader": ["DataLoader"],
    "dataset": ["ArrayDataset", "RecordFileDataset", "SimpleDataset"],
    "sampler": ["BatchSampler", "FilterSampler", "RandomSampler", "SequentialSampler"],
}
# `install` warns of classes that other tests in this process have derived from MXNet's loader. The programs below run
# with `-W error`, so a warning in a program still fails the test.
pytestmark = pytest.mark.filterwarnings("ignore:MXNet's DataLoader was imported or subclassed:RuntimeWarning")
THEIRS = {name: getattr(GLUON, name) for names in CLASSES.values() for name in names}


@pytest.fixture(autouse=True)
def uninstalled():
    gc.collect()  # deletes classes that a test has derived from MXNet's loader, since install would warn of them
    yield
    uninstall()


def attributes():
    """All classes and functions in the modules of MXNet, GluonNLP and GluonCV, as they are now."""
    packages = ("mxnet", "gluonnlp", "gluoncv")
    modules = [name for name in sys.modules if name.partition(".")[0] in packages and sys.modules[name] is not None]
    return {
        (name, key): id(value) for name in modules for key, value in vars(sys.modules[name]).items() if callable(value)
    }


def assert_installed():
    for module, names in CLASSES.items():
        for name in names:
            ours = getattr(OURS, name)
            assert getattr(mx.gluon.data, name) is ours
            assert getattr(getattr(mx.gluon.data, module), name) is ours


def assert_not_installed():
    for module, names in CLASSES.items():
        for name in names:
            assert getattr(mx.gluon.data, name) is THEIRS[name]
            assert getattr(getattr(mx.gluon.data, module), name) is THEIRS[name]


def test_install_replaces_the_names_and_uninstall_restores_each_attribute():
    importlib.import_module("mxnet.gluon.contrib.estimator")
    before = attributes()
    install()
    assert_installed()
    uninstall()
    assert attributes() == before
    assert_not_installed()


def test_install_is_a_context_manager_and_restores_after_an_error():
    before = attributes()
    with pytest.raises(KeyError), install():
        {}["of the user"]
    assert attributes() == before


def test_a_second_install_changes_nothing():
    before = attributes()
    install()
    once = attributes()
    install()
    assert attributes() == once
    uninstall()
    assert attributes() == before


def test_uninstall_without_install_does_nothing():
    before = attributes()
    uninstall()
    uninstall()
    assert attributes() == before


def test_install_again_after_uninstall():
    for _ in range(3):
        with install():
            assert_installed()
        assert_not_installed()


def test_install_in_several_threads_at_once_is_undone_by_one_uninstall():
    before, hooks = attributes(), list(sys.meta_path)
    for _ in range(20):
        start = threading.Barrier(8)
        threads = [threading.Thread(target=lambda start=start: (start.wait(), install())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_installed()
        uninstall()
        assert (attributes(), sys.meta_path) == (before, hooks)


def test_install_logs_the_replaced_names_at_level_info(caplog):
    with caplog.at_level(logging.INFO, "gluonloader"), install():
        pass
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert "mxnet.gluon.data" in "\n".join(texts)
    assert "DataLoader" in "\n".join(texts)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_class_derived_after_install_uses_gluonloader(num_workers):
    with install():

        class Loader(mx.gluon.data.DataLoader):
            def __init__(self, dataset, batch_size):
                super().__init__(dataset, batch_size, num_workers=num_workers)

    assert issubclass(Loader, gluonloader.DataLoader)
    assert [batch.asnumpy().tolist() for batch in Loader([1, 2, 3], 2)] == [[1, 2], [3]]


def test_a_class_derived_before_install_is_named_in_a_warning():
    class Derived(mx.gluon.data.DataLoader):
        pass

    with pytest.warns(RuntimeWarning, match=r"use MXNet's loader: .*Derived; call install\(\) before"), install():
        pass


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore")
def test_estimator_accepts_loaders_of_both_libraries_before_during_and_after_install(num_workers):
    from mxnet.gluon.contrib.estimator import Estimator

    def loader(data):
        dataset = data.ArrayDataset(mx.nd.ones((8, 3)), mx.nd.zeros(8))
        return data.DataLoader(dataset, 4, num_workers=num_workers)

    def fit(loader):
        estimator.fit(train_data=loader, val_data=loader, epochs=1)
        return estimator.train_metrics[0].get()[1]

    net = mx.gluon.nn.Dense(2)
    net.initialize()
    estimator = Estimator(net, mx.gluon.loss.SoftmaxCrossEntropyLoss(), context=mx.cpu())
    estimator.logger.setLevel(logging.ERROR)
    loaders = [loader(GLUON)]
    with install():
        loaders += [loader(mx.gluon.data), loader(OURS)]
        assert isinstance(loaders[1], gluonloader.DataLoader)
        assert all(fit(each) >= 0 for each in loaders)
    assert all(fit(each) >= 0 for each in loaders)


def test_objects_made_before_install_work_with_objects_made_after_install():
    dataset, sampler = THEIRS["SimpleDataset"](list(range(5))), THEIRS["SequentialSampler"](5)
    with install():
        data = mx.gluon.data
        assert [each.asnumpy().tolist() for each in data.DataLoader(dataset, 3, sampler=sampler)] == [[0, 1, 2], [3, 4]]
        assert list(dataset.sample(sampler)) == list(dataset.shard(1, 0)) == list(range(5))
        assert isinstance(data.ArrayDataset([1]), GLUON.Dataset)
    assert list(data.SimpleDataset([1, 2]).sample(data.SequentialSampler(2))) == [1, 2]


@pytest.fixture
def program(tmp_path):
    """A function that runs `python *arguments` in a new folder with files; `name=text` adds the file `name`.py."""

    def run(*arguments, **files):
        return run_in(tmp_path, *arguments, torch="raise ImportError('hidden from GluonCV')\n", **files)

    return run


TOOLKITS = """
import logging, sys, types, warnings
{imports_before}
import gluonloader.mxnet as ours
from mxnet import gluon

def attributes():
    modules = {{key: value for key, value in sys.modules.items() if isinstance(value, types.ModuleType)}}
    packages = ("mxnet", "gluonnlp", "gluoncv")
    return {{(key, name): id(value) for key, module in modules.items() if key.partition(".")[0] in packages
            for name, value in vars(module).items() if callable(value)}}

before = attributes()
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
theirs = [gluon.data.DataLoader]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ours.install()
warned = [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]
{imports_after}
import gluonnlp, gluoncv, gluoncv.data.dataloader
assert gluonnlp.data.ShardedDataLoader is ours.ShardedDataLoader is gluonnlp.data.dataloader.ShardedDataLoader
assert gluoncv.data.RandomTransformDataLoader is ours.RandomTransformDataLoader
assert gluoncv.data.dataloader.RandomTransformDataLoader is ours.RandomTransformDataLoader
print("derived from ours:", issubclass(gluoncv.data.DetectionDataLoader, ours.DataLoader))
print("warned:", warned)
for workers in (0, 2):
    loader = gluoncv.data.DetectionDataLoader(gluon.data.ArrayDataset([1, 2, 3]), 2, num_workers=workers,
                                              batchify_fn=gluonnlp.data.batchify.Stack())
    print([batch.asnumpy().tolist() for batch in loader])
ours.uninstall()
now = attributes()
assert gluon.data.DataLoader is theirs[0]
print("changed:", [key for key, value in before.items() if now.get(key) != value])
kinds = {{id(kind) for kind in (ours.DataLoader, ours.ShardedDataLoader, ours.RandomTransformDataLoader)}}
print("left:", [key for key, value in now.items() if value in kinds])
"""


@pytest.mark.spawn
@pytest.mark.skipif(not (find_spec("gluonnlp") and find_spec("gluoncv")), reason="needs GluonNLP and GluonCV")
@pytest.mark.parametrize("order", ["before", "after"])
def test_the_loaders_of_gluonnlp_and_gluoncv_are_replaced_if_imported_before_or_after(program, order):
    imports = {"imports_before": "", "imports_after": "", f"imports_{order}": "import gluonnlp, gluoncv"}
    done = program("-W", "ignore", "train.py", train=TOOLKITS.format(**imports))
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert "mxnet.gluon.data.DataLoader" in first
    assert ("gluonnlp.data.ShardedDataLoader" in first) == (order == "before")
    assert ("gluoncv.data.RandomTransformDataLoader" in first) == (order == "before")
    assert lines[-6:] == [
        f"derived from ours: {order == 'after'}",
        "warned: []",  # the user has done nothing wrong
        "[[1, 2], [3]]",
        "[[1, 2], [3]]",
        "changed: []",
        "left: []",
    ]


SCRIPT = """
import sys
from mxnet import gluon
import beside

class Squares(gluon.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return index * index

if __name__ == "__main__":
    import __main__
    assert __main__.Squares is Squares and vars(__main__) is globals()
    print(sys.argv, __name__, __file__, sys.path[0] == beside.__file__.rpartition("/")[0])
    for options in ({}, {"num_workers": 2}):
        loader = gluon.data.DataLoader(Squares(), 2, **options)
        print(type(loader).__module__, [batch.asnumpy().tolist() for batch in loader])
    sys.exit(3)
"""
MXNET = ["-W", "error", "-W", "ignore::DeprecationWarning", "-m", "gluonloader.mxnet", "--quiet"]


@needs_old_numpy
@pytest.mark.spawn
@pytest.mark.parametrize("command", [["folder/train.py"], ["-m", "folder.train"]], ids=["file", "module"])
def test_a_script_runs_in_the_same_environment_as_under_python(program, tmp_path, command):
    """Arguments, `__name__`, `__file__` and imports from its folder are the same; workers can unpickle its classes."""
    script = SCRIPT.replace("import beside", "from . import beside") if "-m" in command else SCRIPT
    arguments = ["--num-workers", "2", "-v", "-m", "-h", "--", "a b", ""]
    plain = program(*command, *arguments, **{"folder/train": script, "folder/beside": ""})
    ours = program(*MXNET, *command, *arguments)
    assert plain.returncode == 3, plain.stderr
    assert (ours.stderr, ours.returncode) == ("", 3)
    assert plain.stdout.splitlines()[-2:] == ["mxnet.gluon.data.dataloader [[0, 1], [4]]"] * 2
    assert ours.stdout == plain.stdout.replace("mxnet.gluon.data.", "gluonloader.mxnet.")


@needs_old_numpy
@pytest.mark.spawn
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no safe path")
def test_with_a_safe_path_the_folder_of_the_script_is_not_searched(program):
    """As with `python -P train.py`: also the first folder of PYTHONPATH stays."""
    script = "import sys\nprint(sys.path[:2])\n"
    plain, ours = (program("-P", *command, "train.py", train=script) for command in ([], MXNET))
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0)


@needs_old_numpy
@pytest.mark.spawn
def test_spawned_workers_can_unpickle_the_classes_of_a_script(program):
    script = SCRIPT.replace('({}, {"num_workers": 2})', '[{"num_workers": 2, "start_method": "spawn"}]')
    done = program(*MXNET, "train.py", train=script, beside="")
    assert (done.stderr, done.returncode) == ("", 3)
    assert done.stdout.splitlines()[-1] == "gluonloader.mxnet.dataloader [[0, 1], [4]]"


@pytest.mark.spawn
@pytest.mark.parametrize("end", ENDS)
def test_a_script_ends_as_under_python(program, end):
    """The exit status, the output and the traceback are the same; the traceback shows only the script."""
    ours, plain = program(*MXNET, "train.py", train=ENDS[end]), program("train.py")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.spawn
def test_the_error_if_no_script_can_be_run(program):
    none, missing, asked, no_module = (
        program(*MXNET, *arguments) for arguments in ([], ["nowhere.py"], ["-h"], ["-m", "nowhere.train"])
    )
    assert none.returncode == missing.returncode == 2
    assert none.stderr.startswith("usage: python -m gluonloader.mxnet ")
    assert "script" in none.stderr.splitlines()[-1]
    assert "nowhere.py" in missing.stderr.splitlines()[-1]
    assert asked.returncode == 0
    assert "usage: python -m gluonloader.mxnet " in asked.stdout
    assert no_module.returncode != 0
    assert "nowhere" in no_module.stderr.splitlines()[-1]
    without = program(*MXNET, "train.py", train="", mxnet="raise ModuleNotFoundError('hidden', name='mxnet')")
    assert without.returncode == 2
    assert without.stderr.endswith('mxnet is not installed; run pip install "gluonloader[mxnet]"\n')
    assert all("Traceback" not in done.stderr for done in (none, missing, asked, without))


@pytest.mark.spawn
def test_verbose_prints_the_replaced_names_and_the_script_can_still_configure_logging(program):
    script = "import logging, sys\nlogging.basicConfig(stream=sys.stdout)\nlogging.warning('of the script')\n"
    done = program(*MXNET, "-v", "train.py", train=script)
    assert (done.returncode, done.stdout) == (0, "WARNING:root:of the script\n")
    assert "mxnet.gluon.data.DataLoader" in done.stderr
