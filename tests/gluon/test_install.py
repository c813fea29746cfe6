"""`gluonloader.mxnet.install`, and programs that `python -m gluonloader.mxnet` runs."""

import importlib
import logging
import sys
from importlib.util import find_spec

import pytest
from installs import Dropin, EnvironmentTests, InstallTests, ProgramTests

import gluonloader

from .sides import GLUON, OURS, mx, needs_old_numpy

importlib.import_module("mxnet.gluon.contrib.estimator")  # `install` changes the names that it has imported
NAMES = {
    "dataloader": ["DataLoader"],
    "dataset": ["ArrayDataset", "RecordFileDataset", "SimpleDataset"],
    "sampler": ["BatchSampler", "FilterSampler", "RandomSampler", "SequentialSampler"],
}
THEIRS = {name: getattr(GLUON, name) for names in NAMES.values() for name in names}


class OfMXNet(Dropin):
    ours, data, library, packages = OURS, GLUON, "MXNet", ("mxnet", "gluonnlp", "gluoncv")
    names, theirs = list(THEIRS), THEIRS
    imports, loader = "from mxnet import gluon\nfrom mxnet.gluon.data import Dataset", "gluon.data.DataLoader"
    ways = '({}, {"num_workers": 2})'
    warnings, hidden = ("-W", "ignore::DeprecationWarning"), {"torch": "raise ImportError('hidden from GluonCV')\n"}


class TestInstall(OfMXNet, InstallTests):
    def test_the_modules_of_gluon_have_the_same_classes(self):
        with self.ours.install():
            for module, names in NAMES.items():
                for name in names:
                    assert getattr(getattr(mx.gluon.data, module), name) is getattr(OURS, name)
            assert mx.contrib.io.DataLoaderIter is OURS.DataLoaderIter

    def test_objects_made_before_install_work_with_objects_made_after_install(self):
        dataset, sampler = THEIRS["SimpleDataset"](list(range(5))), THEIRS["SequentialSampler"](5)
        with self.ours.install():
            batches = mx.gluon.data.DataLoader(dataset, 3, sampler=sampler)
            assert [each.asnumpy().tolist() for each in batches] == [[0, 1, 2], [3, 4]]
            assert list(dataset.sample(sampler)) == list(dataset.shard(1, 0)) == list(range(5))
            assert isinstance(mx.gluon.data.ArrayDataset([1]), GLUON.Dataset)

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.filterwarnings("ignore")
    def test_estimator_accepts_loaders_of_both_libraries_before_during_and_after_install(self, num_workers):
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
        with self.ours.install():
            loaders += [loader(mx.gluon.data), loader(OURS)]
            assert isinstance(loaders[1], gluonloader.DataLoader)
            assert all(fit(each) >= 0 for each in loaders)
        assert all(fit(each) >= 0 for each in loaders)


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


class TestPrograms(OfMXNet, ProgramTests):
    @pytest.mark.skipif(not (find_spec("gluonnlp") and find_spec("gluoncv")), reason="needs GluonNLP and GluonCV")
    @pytest.mark.parametrize("order", ["before", "after"])
    def test_the_loaders_of_gluonnlp_and_gluoncv_are_replaced_if_imported_before_or_after(self, program, order):
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


@needs_old_numpy
class TestEnvironments(OfMXNet, EnvironmentTests):
    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no safe path")
    def test_with_a_safe_path_the_folder_of_the_script_is_not_searched(self, program):
        """As with `python -P train.py`: also the first folder of PYTHONPATH stays."""
        script = "import sys\nprint(sys.path[:2])\n"
        plain, ours = (program("-P", *command, "train.py", train=script) for command in ([], self.command()))
        assert (ours.stdout, ours.returncode) == (plain.stdout, 0)

    def test_spawned_workers_can_unpickle_the_classes_of_a_script(self, program):
        script = self.script('[{"num_workers": 2, "start_method": "spawn"}]')
        done = program(*self.command(), "train.py", train=script, beside="")
        assert (done.stderr, done.returncode) == ("", 3)
        assert done.stdout.splitlines()[-1] == "gluonloader.mxnet.dataloader [[0, 1], [4]]"
