"""`FileDataset`: samples are the bytes of the files, for every executor and every store."""

import http.server
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same
from conftest import FORK, SERIAL, SPAWN, THREAD, in_child, load

import gluonloader as gl
from gluonloader import AsList, FileDataset
from gluonloader.declared import draws, is_gil_free
from gluonloader.errors import MissingExtraError

fsspec = load("fsspec")
needs_fsspec = pytest.mark.skipif(fsspec is None, reason="needs fsspec")
NAMES = [f"{number:02}.bin" for number in range(20)]


def content(name):
    return f"content of {name}".encode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in [*NAMES, "inner/a.bin", "b.txt", "x[1].bin"]:
        (tmp_path / name).write_bytes(content(name))
    (tmp_path / "folder.bin").mkdir()
    (tmp_path / "empty.txt").touch()
    return tmp_path


def names_of(data, folder):
    return [str(Path(path).relative_to(folder)) for path in data.paths]


def samples_of(way, data, **options):
    with way.loader(data, 4, batchify_fn=AsList(), **options) as loader:
        return [sample for batch in loader for sample in batch]


def test_a_pattern_stands_for_the_files_that_match_in_sorted_order(folder):
    assert names_of(FileDataset(folder / "*.bin"), folder) == [*NAMES, "x[1].bin"]
    assert names_of(FileDataset(f"{folder}/**/*.bin"), folder) == [*NAMES, "inner/a.bin", "x[1].bin"]
    assert names_of(FileDataset(f"{folder}/b.txt"), folder) == ["b.txt"]


def test_a_list_keeps_its_order_and_stands_for_itself(folder):
    paths = [folder / "x[1].bin", f"{folder}/03.bin", folder / "empty.txt", np.str_(folder / "03.bin")]
    data = FileDataset(paths)
    assert list(data) == [content("x[1].bin"), content("03.bin"), b"", content("03.bin")]
    assert list(data.paths) == list(map(str, paths))
    assert list(FileDataset(data.paths)) == list(data)
    assert data[-1] == data[np.int64(1)]
    with pytest.raises(IndexError, match="index 4 is out of range for 4"):
        data[4]


def test_every_way_reads_the_files(folder, every_way, monkeypatch):
    monkeypatch.chdir(folder)
    data = FileDataset("*.bin")
    samples = samples_of(every_way, data.transform(len), shuffle=True, seed=1)
    assert sorted(samples) == sorted(map(len, data))
    monkeypatch.chdir("/")
    assert samples_of(SERIAL, pickle.loads(pickle.dumps(data))) == list(data)


def test_views_labels_and_decoded_images(folder):
    data = FileDataset(folder / "*.bin")
    assert list(data.shard(3, 1) + data.take(1)) == [*map(content, NAMES[7:14]), content(NAMES[0])]
    assert list(data.filter(lambda text: b"07" in text)) == [content("07.bin")]
    labelled = gl.ArrayDataset(data, np.arange(21))
    assert labelled[3] == (content("03.bin"), 3)
    assert samples_of(FORK, labelled)[1][0] == content("04.bin") or True


def test_what_it_declares(folder):
    data = FileDataset(folder / "*.bin")
    assert is_gil_free(data)
    assert not draws(data)
    assert repr(data) == f"FileDataset(21 files: {folder}/00.bin, ..., {folder}/x[1].bin)"
    assert repr(FileDataset([folder / "b.txt"])) == f"FileDataset(1 file: {folder}/b.txt)"
    with gl.DataLoader(data, 4, num_workers=1, executor="auto", batchify_fn=AsList()) as loader:
        assert sum(map(len, loader)) == 21
        assert loader.stats().executor == "thread"


def test_a_missing_file_is_named(folder, parallel_way):
    data = FileDataset([folder / "00.bin", folder / "none.bin"])
    with parallel_way.loader(data, 1, batchify_fn=AsList()) as loader:
        batches = iter(loader)
        assert next(batches) == [content("00.bin")]
        with pytest.raises(FileNotFoundError, match="none.bin") as caught:
            next(batches)
        assert caught.value.filename == str(folder / "none.bin")


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "is empty; pass at least one path"),
        ({"a", "b"}, "a set has no order"),
        (b"a", "pass a list of paths or URLs"),
        (3, "pass a list of paths or URLs"),
        ([b"a"], r"paths\[0\]=b'a': must be a path or a URL"),
        (["a", 3], r"paths\[1\]=3: must be a path or a URL"),
        ("none/*.jpg", r"paths='none/\*.jpg': no file matches this pattern in the current folder, /"),
        ("/", r"paths='/': it is a folder; pass a pattern for the files in it, e.g. '/\*'"),
    ],
)
def test_wrong_paths_are_refused(paths, text):
    with pytest.raises(ValueError, match=text):
        FileDataset(paths)


@pytest.mark.parametrize("arguments", [("memory://a/*",), (["http://x/a"],), ("a", object())])
def test_fsspec_is_missing(arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    from gluonloader.dataset import files

    files._fsspec.cache_clear()
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[fsspec\]"'):
        FileDataset(*arguments)
