"""`python -m gluonloader bench`."""

import json
import os
import sys

import pytest
from conftest import load_or_skip

from gluonloader.__main__ import main
from gluonloader.tools.arguments import keywords

TRAIN = """
import numpy as np
from gluonloader import DataLoader, SimpleDataset

print("imported")

def make(**options):
    return DataLoader(np.zeros((1000, 16), np.float32), **{"batch_size": 10, **options})

def pairs(**options):
    return DataLoader([(i, np.float32(i)) for i in range(100)], 10, batchify_fn=list, **options)

def stream(**options):
    return DataLoader(iter_of(100), 10, **options)

class iter_of:
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        return iter(range(self.count))
    def shard(self, number, index):
        return iter_of(self.count)

def empty(**options):
    return DataLoader([], 10, **options)

def read(index):
    raise OSError(f"no photo {index}")

def typo(**options):
    return DataLoder([], 10, **options)

def open_photo(index):
    if index == 13:
        raise OSError(f"cannot identify image file {'/data' * 30}/train/{index}.jpg\\n  it is damaged")
    return index

def with_a_bad_sample(**options):
    dataset = SimpleDataset(range(100)).transform(open_photo)
    return DataLoader(dataset, 10, on_error="skip", **options)

def broken(**options):
    return DataLoader(SimpleDataset(range(20)).transform(read), 10, **options)
"""


@pytest.fixture
def train(tmp_path):
    """A file with factories; its name differs in each test, since modules are imported once."""
    path = tmp_path / f"train_{os.path.basename(tmp_path)}.py"
    path.write_text(TRAIN)
    return path


def bench(train, factory, capsys, *options):
    assert main(["bench", f"{train}:{factory}", "--seconds", "0.5", *options]) == 0
    return capsys.readouterr().out


def test_it_prints_a_table_and_sentences(train, capsys):
    lines = bench(train, "make", capsys).splitlines()
    assert lines[0].startswith("DataLoader(")
    assert lines[2].startswith("                batches/s")
    assert [line.split("  ")[0] for line in lines[3:5]] == ["this loader", "perfect loader"]
    assert lines[6] == "Pass --step to see how fast your program would be with a perfect loader."
    assert "of computing and" in lines[7]
    assert lines[8].startswith("The program waited")


@pytest.mark.parametrize("workers", [0, 2])
def test_json(train, capsys, workers):
    options = ["--with", f"num_workers={workers}, batch_size=20", "--step", "0.001", "--busy", "--json"]
    found = json.loads(bench(train, "make", capsys, *options))
    ours, perfect = found["speeds"]
    assert ours["samples_per_s"] == pytest.approx(20 * ours["batches_per_s"])
    assert ours["mb_per_s"] == pytest.approx(20 * 16 * 4 / 2**20 * ours["batches_per_s"])
    assert ours["low"] <= ours["batches_per_s"] <= ours["high"] <= 1 / 0.001
    assert ours["first_batch_s"] > 0
    assert ours["wait_p50_s"] <= ours["wait_p90_s"] <= ours["wait_p99_s"]
    assert 0 < ours["waited"] < 1
    assert ours["ratio"] == 1
    assert perfect["name"] == "perfect loader"
    assert perfect["ratio_low"] <= perfect["ratio"] <= perfect["ratio_high"]
    assert found["program_cpu_s"] > 0
    assert (found["worker_cpu_s"] > 0) == (workers > 0)
    assert found["step_s"] == 0.001


@pytest.mark.parametrize(("factory", "workers"), [("make", 0), ("make", 1), ("pairs", 0)])
def test_against_torch(train, capsys, factory, workers):
    load_or_skip("torch")
    out = bench(train, factory, capsys, "--against", "torch", "--with", f"num_workers={workers}")
    assert "\ntorch  " in out
    assert "times as fast as torch's (" in out


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        ("stream", "--against torch: it needs a dataset with __getitem__, but this dataset is iterable"),
        ("empty", "this loader raised ValueError: the loader yields no batch"),
        ("broken", "this loader raised OSError: no photo 0; gluonloader: in dataset[0], batch 0 of epoch 0"),
        ("typo", "typo raised NameError: name 'DataLoder' is not defined"),
    ],
)
def test_errors(train, capsys, factory, text):
    load_or_skip("torch")
    assert main(["bench", f"{train}:{factory}", "--seconds", "0.2", "--against", "torch"]) == 2
    assert text in capsys.readouterr().err


def test_an_error_of_torch_is_named(train, capsys, monkeypatch):
    data = load_or_skip("torch.utils.data")

    def refuse(*args, **kwargs):
        raise TypeError("no")

    monkeypatch.setattr(data, "DataLoader", refuse)
    assert main(["bench", f"{train}:make", "--seconds", "0.2", "--against", "torch"]) == 2
    assert "torch raised TypeError: no" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [0, 1])
def test_results_are_kept_if_torch_meets_a_bad_sample(train, capsys, workers):
    load_or_skip("torch")
    options = ["--seconds", "0.2", "--against", "torch", "--with", f"num_workers={workers}"]
    assert main(["bench", f"{train}:with_a_bad_sample", *options]) == 1
    out = capsys.readouterr().out
    assert "\nperfect loader  " in out
    assert "\ntorch " not in out.partition("torch raised")[0]
    error = f"OSError: cannot identify image file {'/data' * 30}/train/13.jpg it is damaged"
    assert f"torch raised {error}; so there is no comparison with it.\n" in out
    assert main(["bench", f"{train}:with_a_bad_sample", *options, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [speed["name"] for speed in found["speeds"]] == ["this loader", "perfect loader"]
    assert found["failed"] == [f"torch raised {error}"]


def test_without_torch(train, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["bench", f"{train}:make", "--against", "torch"]) == 2
    assert 'torch is not installed; run pip install "gluonloader[torch]"' in capsys.readouterr().err


def test_keyword_arguments():
    assert keywords("num_workers=2, executor='thread', prefetch=None") == {
        "num_workers": 2, "executor": "thread", "prefetch": None,
    }  # fmt: skip
    assert keywords("") == {}
