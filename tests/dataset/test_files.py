"""`FileDataset`: samples are the bytes of the files, for every executor and every store."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same
from conftest import FORK, SERIAL, SPAWN, THREAD, in_child, load, run_program
from pictures import limited_memory
from remote_files import NAMES, content, http_server

import gluonloader as gl
from gluonloader import AsList, FileDataset
from gluonloader.declared import draws, is_gil_free
from gluonloader.errors import MissingExtraError

fsspec, aiohttp = load("fsspec"), load("aiohttp")
needs_fsspec = pytest.mark.skipif(fsspec is None, reason="needs fsspec")


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
    samples = samples_of(every_way, data.transform(len), shuffle=True, seed=1, concurrency=3)
    assert sorted(samples) == sorted(map(len, data))
    monkeypatch.chdir("/")
    assert samples_of(SERIAL, pickle.loads(pickle.dumps(data))) == list(data)


def test_views_labels_and_decoded_images(folder):
    data = FileDataset(folder / "*.bin")
    assert list(data.shard(3, 1) + data.take(1)) == [*map(content, [*NAMES, "x[1].bin"][5:9]), content(NAMES[0])]
    assert list(data.filter(lambda text: b"07" in text)) == [content("07.bin")]
    labelled = gl.ArrayDataset(data, np.arange(13))
    assert labelled[3] == (content("03.bin"), 3)
    with FORK.loader(labelled, 2, batchify_fn=gl.Group(AsList(), gl.Stack())) as loader:
        texts, labels = next(iter(loader))
    assert texts == [content("00.bin"), content("01.bin")]
    assert labels.tolist() == [0, 1]


def test_what_it_declares(folder):
    data = FileDataset(folder / "*.bin")
    assert is_gil_free(data)
    assert not draws(data)
    assert repr(data) == f"FileDataset(13 files: {folder}/00.bin, ..., {folder}/x[1].bin)"
    assert repr(FileDataset([folder / "b.txt"])) == f"FileDataset(1 file: {folder}/b.txt)"
    with gl.DataLoader(data, 4, num_workers=1, executor="auto", batchify_fn=AsList()) as loader:
        assert sum(map(len, loader)) == 13
        assert loader.stats().executor == "thread"


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of this process")
def test_a_file_that_does_not_fit_into_memory_is_named(tmp_path):
    (tmp_path / "huge.bin").touch()
    os.truncate(tmp_path / "huge.bin", 40 * 2**30)  # the file is sparse
    with limited_memory(), pytest.raises(MemoryError) as caught:
        FileDataset(tmp_path / "huge.bin")[0]
    assert caught.value.__notes__ == [f"gluonloader: while reading {tmp_path}/huge.bin"]


def test_a_missing_file_is_named(folder, any_way):
    data = FileDataset([folder / "00.bin", folder / "none.bin"])
    with any_way.loader(data, 1, batchify_fn=AsList()) as loader:
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
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[fsspec\]"'):
        FileDataset(*arguments)


# -- files that fsspec reads -------------------------------------------------------------------------------------------


@pytest.fixture
def bucket():
    """A folder of memory://, and its files."""
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/bucket/{name}": content(name) for name in [*NAMES, "x[1].bin", "inner/a.bin"]})
    yield "memory://bucket"
    memory.rm("/bucket", recursive=True)


@pytest.fixture
def many(tmp_path):
    """A filesystem that answers many requests at once."""
    from remote_files import ManyAtOnce

    for folder in (tmp_path, tmp_path / "inner"):
        folder.mkdir(exist_ok=True)
        for name in [*NAMES, "x[1].bin"]:
            (folder / name).write_bytes(content(name))
    ManyAtOnce.requests = 0
    return ManyAtOnce(tmp_path)


@pytest.fixture
def server():
    if aiohttp is None:
        pytest.skip("needs aiohttp")
    with http_server() as url:
        yield url


def end_of(paths):
    return [path.rpartition("/")[2] for path in paths]


@needs_fsspec
def test_a_pattern_in_memory(bucket):
    data = FileDataset(f"{bucket}/*.bin")
    assert list(data.paths) == [f"{bucket}/{name}" for name in [*NAMES, "x[1].bin"]]
    assert list(data) == [content(name) for name in [*NAMES, "x[1].bin"]]
    assert end_of(FileDataset(f"{bucket}/**/*.bin").paths) == [*NAMES, "a.bin", "x[1].bin"]
    assert list(FileDataset(data.paths[3:5])) == list(data.take(5).sample([3, 4]))
    assert list(FileDataset("bucket/0?.bin", fsspec.filesystem("memory"))) == [content(name) for name in NAMES[:10]]
    assert not hasattr(data, "__getitems__")  # since memory:// reads one file after the other


@needs_fsspec
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_files_in_memory_are_read_by_threads_and_forked_workers(way, bucket):
    data = FileDataset(f"{bucket}/*.bin")
    assert samples_of(way, data) == list(data)
    assert samples_of(way, data, concurrency=4) == list(data)


@needs_fsspec
@pytest.mark.spawn
def test_files_in_memory_do_not_exist_in_new_interpreters(bucket):
    with SPAWN.loader(FileDataset(f"{bucket}/*.bin"), 4, batchify_fn=AsList()) as loader:
        with pytest.raises(FileNotFoundError, match="memory://bucket/00.bin") as caught:
            next(iter(loader))
    assert 'exist only in the process that wrote them; pass start_method="fork"' in "".join(caught.value.__notes__)


@needs_fsspec
def test_every_way_reads_with_a_filesystem_that_the_program_has_used(many, every_way):
    data = FileDataset("*.bin", many)
    assert list(data) == [content(name) for name in [*NAMES, "x[1].bin"]]
    assert samples_of(every_way, data.transform(len), concurrency=2) == list(map(len, data))
    assert data[0] == content("00.bin")


@needs_fsspec
def test_a_bulk_read_requests_all_files_at_once_and_each_file_once(many, monkeypatch):
    data = FileDataset([*NAMES, "x[1].bin"], many)
    assert_bulk_is_the_same(data, [3, 12, 0, -1, 3])
    monkeypatch.setattr(type(many), "wanted", 4)
    monkeypatch.setattr(type(many), "requests", 0)
    indices = [3, 1, 3, 5, 3, 0]
    assert data.__getitems__(indices) == [content(NAMES[index]) for index in indices]
    assert type(many).requests == 4


@needs_fsspec
def test_errors_of_a_bulk_read_name_the_file_and_the_sample(many):
    data = FileDataset(["00.bin", "none.bin", "broken"], many)
    for read in (lambda: data[1], lambda: data.__getitems__([0, 1])):
        with pytest.raises(FileNotFoundError, match="No such file or directory: 'none.bin'") as caught:
            read()
    assert "sample 1 of a bulk read" in "".join(caught.value.__notes__)
    for read in (lambda: data[2], lambda: data.__getitems__([0, 2, 1])):
        with pytest.raises(OSError, match="on fire") as caught:
            read()
        assert "while reading broken" in "".join(caught.value.__notes__)
    with FORK.loader(data, 3, batchify_fn=AsList()) as loader, pytest.raises(FileNotFoundError, match="none.bin"):
        next(iter(loader))


@needs_fsspec
def test_a_filesystem_is_made_again_in_each_process(many):
    data = FileDataset(NAMES, many)
    assert data[0] == content("00.bin")
    threads = fsspec.asyn.iothread[0]
    assert in_child(lambda: str(data[1] == content("01.bin") and fsspec.asyn.iothread[0] is not threads)) == "True"
    child = f"in a child of a child: {content('02.bin')}"
    assert in_child(lambda: in_child(lambda: f"in a child of a child: {data[2]}")) == child
    assert data[3] == content("03.bin")
    copy = pickle.loads(pickle.dumps(data))
    assert copy[4] == content("04.bin")


@needs_fsspec
def test_filesystems_that_contain_others(many, bucket, any_way):
    cache = fsspec.filesystem("simplecache", target_protocol="memory")
    cached = FileDataset([f"bucket/{name}" for name in NAMES], cache)
    inner = fsspec.filesystem("dir", path="inner", fs=many)
    for data in (cached, FileDataset(NAMES, inner)):
        assert data[0] == content("00.bin")
        assert samples_of(any_way, data) == [content(name) for name in NAMES]
        assert data.__getitems__([2, 1, 2]) == [content(NAMES[index]) for index in (2, 1, 2)]
    assert end_of(FileDataset(f"simplecache::{bucket}/0*.bin").paths) == NAMES[:10]
    with pytest.raises(FileNotFoundError, match="none.bin"):
        FileDataset([f"bucket/{name}" for name in ("00.bin", "none.bin")], cache).__getitems__([0, 1])


@pytest.mark.spawn
@needs_fsspec
def test_a_list_of_urls_starts_no_thread_that_forked_workers_would_lack():
    if aiohttp is None:
        pytest.skip("needs aiohttp")
    made = "from gluonloader import FileDataset; FileDataset(['http://nowhere/a', 'https://nowhere/b'])"
    done = run_program(f"{made}; import threading; print(threading.active_count())")
    assert (done.stdout, done.stderr) == ("1\n", "")


def asynchronous_files():
    from remote_files import ManyAtOnce

    return ManyAtOnce("/", asynchronous=True)


@needs_fsspec
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            ("memory://none/*.bin",),
            ValueError,
            "no file matches this pattern; files of memory:// exist only in the",
        ),
        ((["memory://a", "file://b"],), ValueError, "'file://b' and 'memory://a' are not in the same filesystem; pass"),
        ((["memory://a", "b"],), ValueError, "'b' and 'memory://a' are not in the same filesystem"),
        ((["ftp://one/a", "ftp://two/a"],), ValueError, "'ftp://two/a' and 'ftp://one/a' are not in the same filesys"),
        ((["simplecache::memory://a", "memory://a"],), ValueError, "are not in the same filesystem"),
        (("*", "s3"), ValueError, "fs='s3': must be a filesystem of fsspec"),
        (("*", asynchronous_files), ValueError, "make it without asynchronous=True"),
        (("s4://bucket/*",), ValueError, r"s4://bucket/\*: Protocol not known: s4"),
        ((["s3://bucket/a"],), ImportError, "^s3://bucket/a: Install s3fs to access S3$"),
    ],
)
def test_wrong_filesystems_are_refused(arguments, error, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(error, match=text):
        FileDataset(*(argument() if callable(argument) else argument for argument in arguments))


@needs_fsspec
def test_http(server, any_way):
    data = FileDataset(f"{server}/0*.bin")
    assert list(data.paths) == [f"{server}/{name}" for name in NAMES[:10]]
    assert samples_of(any_way, data) == [content(name) for name in NAMES[:10]]
    names = ["a?version=3", "b?version=4", "x[1].bin", "plain"]
    listed = FileDataset([f"{server}/{name}" for name in names])
    assert samples_of(any_way, listed)[-1] == content("plain")
    assert listed.__getitems__([3, 0, 1, 0]) == [content(names[index]) for index in (3, 0, 1, 0)]
    with any_way.loader(FileDataset([f"{server}/none"]), 1, batchify_fn=AsList()) as loader:
        with pytest.raises(FileNotFoundError, match=f"{server}/none"):
            next(iter(loader))
