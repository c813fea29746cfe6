"""Code of others on both sides: GluonNLP and GluonCV."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import load_or_skip

import gluonloader

from .sides import GLUON, OURS, epoch, mx

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def nlp():
    return load_or_skip("gluonnlp")


SENTENCES = [([5, 1, 4], 0), ([2], 1), ([7, 7], 0), ([1, 2, 3, 4], 1)]


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


def test_arguments_of_gluonnlps_scripts_for_buckets(nlp):
    """GluonNLP's scripts for translation pass both `ratio` and `use_average_length`; then `ratio` is ignored."""
    arguments = {"num_buckets": 5, "ratio": 0.5, "use_average_length": True}
    sampler = gluonloader.buckets.FixedBucketSampler(
        PAIRS, 80, **arguments, bucket_scheme=gluonloader.buckets.ExpWidthBucket()
    )
    wanted = nlp.data.FixedBucketSampler(PAIRS, 80, **arguments, bucket_scheme=nlp.data.ExpWidthBucket())
    assert sampler.stats() == wanted.stats()
    assert list(sampler) == list(wanted)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_gluonnlps_loader_takes_samplers_and_datasets(gdata, nlp, num_workers):
    dataset = gdata.SimpleDataset(list(range(8)))
    batches = gdata.BatchSampler(gdata.SequentialSampler(8), 3, "discard")
    loader = nlp.data.ShardedDataLoader(dataset, batch_sampler=batches, num_workers=num_workers)
    assert epoch(loader) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_gluonnlps_loader_takes_our_batchify_functions(nlp, num_workers):
    function = OURS.batchify.Group(OURS.batchify.Pad(val=-1), OURS.batchify.Stack())
    loader = nlp.data.ShardedDataLoader(SENTENCES, 2, batchify_fn=function, num_workers=num_workers)
    assert epoch(loader) == [[[[5, 1, 4], [2, -1, -1]], [0, 1]], [[[7, 7, -1, -1], [1, 2, 3, 4]], [0, 1]]]


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


@pytest.mark.parametrize("name", ["_MultiWorkerIter", "_as_in_context", "ForkingPickler"])
def test_names_that_gluoncv_and_gluonnlp_import(name):
    assert getattr(OURS.dataloader, name) is getattr(GLUON.dataloader, name)


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
