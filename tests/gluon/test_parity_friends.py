"""Code of others on both sides: MXNet's Estimator and DataLoaderIter, GluonNLP and GluonCV."""

import logging
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import load_or_skip

import gluonloader

from .differences import differs
from .sides import GLUON, OURS, WAYS, epoch, lists, mx


def xor():
    inputs = np.random.default_rng(0).random((64, 4)).astype(np.float32)
    return inputs, (inputs.sum(axis=1) > 2).astype(np.float32)


def estimator(net):
    from mxnet.gluon.contrib.estimator import Estimator

    logger = logging.getLogger("parity")
    logger.setLevel(logging.ERROR)
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    made = Estimator(net=net, loss=loss, train_metrics=mx.metric.Accuracy(), trainer=trainer, context=mx.cpu())
    made.logger.setLevel(logging.ERROR)
    return made


@pytest.mark.filterwarnings("ignore")
def test_estimator_fit_and_evaluate(gdata, way):
    net = mx.gluon.nn.Dense(2)
    fitted = estimator(net)
    train = gdata.DataLoader(gdata.ArrayDataset(*xor()), 16, shuffle=True, **WAYS[way])
    valid = gdata.DataLoader(gdata.ArrayDataset(*xor()), 16, **WAYS[way])
    fitted.fit(train_data=train, val_data=valid, epochs=1)
    assert net.weight.data().shape == (2, 4)
    (metric,) = fitted.train_metrics[:1]
    assert 0 <= metric.get()[1] <= 1


@pytest.mark.filterwarnings("ignore")
def test_estimator_takes_nothing_but_a_loader():
    with pytest.raises(ValueError):
        estimator(mx.gluon.nn.Dense(2)).fit(train_data=[xor()], epochs=1)


def test_data_loader_iter(gdata, way):
    from mxnet.contrib.io import DataLoaderIter

    loader = gdata.DataLoader(gdata.ArrayDataset(*xor()), 16, **WAYS[way])
    batches = list(DataLoaderIter(loader))
    assert [batch.data[0].shape for batch in batches] == [(16, 4)] * 4
    assert (batches[0].label[0].asnumpy() == xor()[1][:16]).all()


def test_metrics_and_trainer(gdata, way):
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    trainer, metric = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}), mx.metric.Accuracy()
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loader = gdata.DataLoader(gdata.ArrayDataset(*xor()), 16, True, **WAYS[way])
    for _ in range(2):
        for x, y in loader:
            with mx.autograd.record():
                output = net(x)
                loss = loss_function(output, y)
            loss.backward()
            trainer.step(16)
            metric.update([y], [output])
    assert metric.num_inst == 128


@pytest.fixture
def nlp():
    return load_or_skip("gluonnlp")


SENTENCES = [([5, 1, 4], 0), ([2], 1), ([7, 7], 0), ([1, 2, 3, 4], 1)]


@pytest.mark.filterwarnings("ignore:.*")
def test_gluonnlps_batchify_functions_in_the_loader(gdata, way, nlp):
    functions = nlp.data.batchify
    function = functions.Tuple(functions.Pad(axis=0, pad_val=0, ret_length=True), functions.Stack("float32"))
    samples = [(np.array(words, np.int32), label) for words, label in SENTENCES]
    batches = list(gdata.DataLoader(samples, 2, batchify_fn=function, **WAYS[way]))
    assert [type(batch) for batch in batches] == [tuple, tuple]
    assert lists(batches) == [
        [[[[5, 1, 4], [2, 0, 0]], [3, 1]], [0, 1]],
        [[[[7, 7, 0, 0], [1, 2, 3, 4]], [2, 4]], [0, 1]],
    ]


@pytest.mark.filterwarnings("ignore:.*")
def test_gluonnlps_samplers_in_the_loader(gdata, nlp):
    lengths = [len(words) for words, _ in SENTENCES]
    buckets = nlp.data.FixedBucketSampler(lengths, batch_size=2, num_buckets=2)
    loader = gdata.DataLoader(range(4), batch_sampler=buckets)
    assert sorted(sum(epoch(loader), [])) == [0, 1, 2, 3]
    assert len(loader) == len(buckets)
    assert epoch(gdata.DataLoader(range(4), 4, sampler=nlp.data.SortedSampler(lengths))) == [[3, 0, 2, 1]]
    parts = [nlp.data.SplitSampler(4, num_parts=2, part_index=i) for i in range(2)]
    assert [sorted(sum(epoch(gdata.DataLoader(range(4), 2, sampler=part)), [])) for part in parts] == [[0, 1], [2, 3]]


PAIRS = [(1 + i % 17, 2 + i * i % 29) for i in range(60)]


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("lengths", [[pair[0] for pair in PAIRS], PAIRS], ids=["ints", "tuples"])
@pytest.mark.parametrize("name", ["ConstWidthBucket", "LinearWidthBucket", "ExpWidthBucket"])
def test_our_bucket_schemes_in_gluonnlps_sampler(nlp, name, lengths):
    """Const and Exp return GluonNLP's buckets. Linear differs: no key of ours is larger than the longest sample."""
    ours, theirs = getattr(gluonloader.buckets, name)(), getattr(nlp.data, name)()
    sampler = nlp.data.FixedBucketSampler(lengths, 4, num_buckets=5, ratio=0.5, bucket_scheme=ours)
    assert sorted(sum(sampler, [])) == list(range(60))
    if name != "LinearWidthBucket":
        wanted = nlp.data.FixedBucketSampler(lengths, 4, num_buckets=5, ratio=0.5, bucket_scheme=theirs)
        assert sampler.stats() == wanted.stats()
        assert list(sampler) == list(wanted)


@pytest.mark.filterwarnings("ignore:.*")
def test_arguments_of_gluonnlps_scripts_for_buckets(nlp):
    """GluonNLP's scripts for translation pass both `ratio` and `use_average_length`; then `ratio` is ignored."""
    arguments = {"num_buckets": 5, "ratio": 0.5, "use_average_length": True}
    sampler = gluonloader.buckets.FixedBucketSampler(
        PAIRS, 80, **arguments, bucket_scheme=gluonloader.buckets.ExpWidthBucket()
    )
    wanted = nlp.data.FixedBucketSampler(PAIRS, 80, **arguments, bucket_scheme=nlp.data.ExpWidthBucket())
    assert sampler.stats() == wanted.stats()
    assert list(sampler) == list(wanted)


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_gluonnlps_loader_takes_samplers_and_datasets(gdata, nlp, num_workers):
    dataset = gdata.SimpleDataset(list(range(8)))
    batches = gdata.BatchSampler(gdata.SequentialSampler(8), 3, "discard")
    loader = nlp.data.ShardedDataLoader(dataset, batch_sampler=batches, num_workers=num_workers)
    assert epoch(loader) == [[0, 1, 2], [3, 4, 5]]


@differs("gluon-2-names", raises=AttributeError)
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_gluonnlps_loader_takes_batchify_functions(gdata, nlp, num_workers):
    function = gdata.batchify.Group(gdata.batchify.Pad(val=-1), gdata.batchify.Stack())
    loader = nlp.data.ShardedDataLoader(SENTENCES, 2, batchify_fn=function, num_workers=num_workers)
    assert epoch(loader) == [
        [[[5, 1, 4], [2, -1, -1]], [0, 1]],
        [[[7, 7, -1, -1], [1, 2, 3, 4]], [0, 1]],
    ]


# GluonCV 0.10 refuses to be imported beside torch 2, so that it is tried in a program without torch.
GLUONCV = """
import sys, warnings
sys.modules["torch"] = None
warnings.simplefilter("ignore")
import gluonloader.mxnet
gluonloader.mxnet.patch_numpy()
import mxnet as mx, numpy as np
from mxnet.gluon import data as theirs
from gluonloader import mxnet as ours
from gluoncv.data import DetectionDataLoader, RandomTransformDataLoader, ShuffleSplitSampler, SplitSampler
from gluoncv.data import batchify as cv

def lists(batches):
    return [[part.asnumpy().tolist() for part in batch] for batch in batches]

class Shift:
    def __init__(self, by):
        self.by = by
    def __call__(self, image, label):
        return image + self.by, label

images, labels = np.zeros((4, 2), np.float32), [np.full((1 + i % 2, 5), i, np.float32) for i in range(4)]
for side in (theirs, ours):
    dataset = side.ArrayDataset(images, side.SimpleDataset(labels))
    batches = side.BatchSampler(side.SequentialSampler(4), 2)
    function = cv.Tuple(cv.Stack(), cv.Pad(axis=0, pad_val=-1))
    wanted = lists(theirs.DataLoader(dataset, 2, batchify_fn=function))
    for workers in (0, 2):
        assert lists(side.DataLoader(dataset, 2, batchify_fn=function, num_workers=workers)) == wanted
        detected = lists(DetectionDataLoader(dataset, batch_sampler=batches, num_workers=workers))
        assert [batch[1] for batch in detected] == [batch[1] for batch in wanted]
        loader = RandomTransformDataLoader([Shift(1)], dataset, batch_sampler=batches, batchify_fn=function,
                                           num_workers=workers)
        assert [batch[0].asnumpy().tolist() for batch in loader] == [[[1, 1], [1, 1]]] * 2
    assert [x.shape[0] for x in side.DataLoader(images, 1, sampler=SplitSampler(4, 2, 0))] == [1, 1]
    assert [x.shape[0] for x in side.DataLoader(images, 1, sampler=ShuffleSplitSampler(4, 2, 0))] == [1, 1]
function = ours.batchify.Group(ours.batchify.Stack(), ours.batchify.Pad(val=-1))
assert lists(DetectionDataLoader(dataset, 2, batchify_fn=function)) == wanted
print("agreed")
"""


@pytest.mark.skipif(find_spec("gluoncv") is None, reason="GluonCV is not installed")
def test_gluoncvs_loaders_samplers_and_batchify_functions():
    done = subprocess.run([sys.executable, "-c", GLUONCV], capture_output=True, text=True, timeout=55)
    assert (done.returncode, done.stdout) == (0, "agreed\n"), done.stderr


def test_what_others_import_is_there():
    """Names that GluonCV and GluonNLP take from the loader's module."""
    for name in (
        "_MultiWorkerIter",
        "_as_in_context",
        "default_batchify_fn",
        "default_mp_batchify_fn",
        "ForkingPickler",
    ):
        assert hasattr(OURS.dataloader, name), name
    assert OURS.dataloader._MultiWorkerIter is GLUON.dataloader._MultiWorkerIter


def test_repr_of_our_gluon_classes(tmp_path):
    def augment(x, y):
        return x, y

    data = OURS.ArrayDataset(np.zeros((60, 2)), mx.nd.zeros(60))
    loader = OURS.DataLoader(data, 32, True)
    assert repr(loader) == "DataLoader(ArrayDataset(60), batch_size=32, shuffle=True)"
    assert repr(data.transform(augment)) == "ArrayDataset(60).transform(augment)"
    assert repr(OURS.BatchSampler(OURS.RandomSampler(60), 32)) == "BatchSampler(RandomSampler(60), batch_size=32)"
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    record.write_idx(0, b"record")
    record.close()
    records = OURS.RecordFileDataset(str(tmp_path / "a.rec"))
    assert (
        repr(OURS.DataLoader(records, 1, num_workers=2))
        == "DataLoader(RecordFileDataset(1), batch_size=1, 2 processes)"
    )
