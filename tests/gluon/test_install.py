"""`gluonloader.mxnet.install`, and programs that `python -m gluonloader.mxnet` runs."""

import importlib
import logging
import sys
import warnings

import pytest

import gluonloader.mxnet
from gluonloader.mxnet import install, uninstall

from .sides import GLUON, OURS, mx

CLASSES = {
    "dataloader": ["DataLoader"],
    "dataset": ["ArrayDataset", "RecordFileDataset", "SimpleDataset"],
    "sampler": ["BatchSampler", "FilterSampler", "RandomSampler", "SequentialSampler"],
}
THEIRS = {name: getattr(GLUON, name) for names in CLASSES.values() for name in names}
FUNCTIONS = ["default_batchify_fn", "default_mp_batchify_fn"]


@pytest.fixture(autouse=True)
def uninstalled():
    yield
    uninstall()


def attributes():
    """All attributes of all modules of MXNet, GluonNLP and GluonCV, as they are now."""
    packages = ("mxnet", "gluonnlp", "gluoncv")
    modules = [name for name in sys.modules if name.partition(".")[0] in packages and sys.modules[name] is not None]
    return {(name, key): id(value) for name in modules for key, value in vars(sys.modules[name]).items()}


def assert_installed():
    for module, names in CLASSES.items():
        for name in names:
            ours = getattr(OURS, name)
            assert getattr(mx.gluon.data, name) is ours
            assert getattr(getattr(mx.gluon.data, module), name) is ours
    for name in FUNCTIONS:
        assert getattr(mx.gluon.data.dataloader, name) is getattr(OURS.dataloader, name)


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


def test_install_logs_at_level_info_what_it_replaced(caplog):
    with caplog.at_level(logging.INFO, "gluonloader"), install():
        pass
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert "mxnet.gluon.data" in "\n".join(texts)
    assert "DataLoader" in "\n".join(texts)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_class_derived_after_install_is_ours(num_workers):
    with install():

        class Loader(mx.gluon.data.DataLoader):
            def __init__(self, dataset, batch_size):
                super().__init__(dataset, batch_size, num_workers=num_workers)

    assert issubclass(Loader, gluonloader.DataLoader)
    assert [batch.asnumpy().tolist() for batch in Loader([1, 2, 3], 2)] == [[1, 2], [3]]


def test_a_class_derived_before_install_is_named_in_a_warning():
    class Derived(mx.gluon.data.DataLoader):
        pass

    with pytest.warns(UserWarning, match="Derived"), install():
        pass


def test_without_such_a_class_there_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with install():
            pass


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore")
def test_estimator_accepts_loaders_of_both_sides_before_during_and_after(num_workers):
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


def test_objects_made_before_work_together_with_those_made_after():
    dataset, sampler = THEIRS["SimpleDataset"](list(range(5))), THEIRS["SequentialSampler"](5)
    with install():
        data = mx.gluon.data
        assert [each.asnumpy().tolist() for each in data.DataLoader(dataset, 3, sampler=sampler)] == [[0, 1, 2], [3, 4]]
        assert list(dataset.sample(sampler)) == list(dataset.shard(1, 0)) == list(range(5))
        assert isinstance(data.ArrayDataset([1]), GLUON.Dataset)
    assert list(data.SimpleDataset([1, 2]).sample(data.SequentialSampler(2))) == [1, 2]
