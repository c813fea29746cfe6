"""`FileDataset` with a cache: files of an object store, each of which is read as a whole."""

import os
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, THREAD, in_child
from hypothesis import given
from hypothesis import strategies as st
from stores.store_server import store_server

from gluonloader import DataLoader, FileDataset, NodeCache
from gluonloader.dataset.cached_files import _is_like
from gluonloader.errors import StoreError
from gluonloader.options import OnError
from gluonloader.stores.folder import space_of

pytest.importorskip("obstore")

pytestmark = pytest.mark.local

SIZES = [0, 1, 100, 4096, 5000, 40_000]
NAMES = ["a.jpg", "b.jpg", "b.png", "x/a.jpg", "x/y/a.jpg", "x/y/z.png", "x/.hidden.jpg", "x y/ö[1].jpg", "x/a.jpg.txt"]


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    root = tmp_path_factory.mktemp("objects") / "bucket"
    rng = np.random.default_rng(0)
    for name in NAMES:
        (root / "names" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "names" / name).write_bytes(name.encode())
    for number in range(200):
        file = root / "many" / f"class{number % 7}" / f"{number:03}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.bytes(SIZES[number % len(SIZES)]))
    return root


@pytest.fixture(scope="module")
def one_server(objects):
    with store_server(objects) as server:
        yield server


@pytest.fixture
def server(one_server, objects, tmp_path, monkeypatch):
    shutil.copytree(objects, tmp_path / "bucket", copy_function=os.link)
    one_server.restart(tmp_path)
    for name, value in one_server.environment.items():
        monkeypatch.setenv(name, value)
    return one_server


@pytest.fixture
def cache(server, tmp_path):
    return NodeCache(tmp_path / "cache", "4 MB", block=4096)


@pytest.fixture
def bucket(tmp_path):
    return tmp_path / "bucket"


def names_of(dataset, root):
    return [path[len(root) :] for path in dataset.paths]


PATTERNS = ["*.jpg", "**/*.jpg", "x/*.jpg", "*/*/*.png", "**/y/*", "x/**/a.jpg", "?.jpg", "[ab].*", "x */*", "**"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_stands_for_the_same_files_as_for_fsspec(pattern, cache, bucket):
    fsspec = pytest.importorskip("fsspec")
    dataset = FileDataset(f"s3://bucket/names/{pattern}", cache=cache)
    local = FileDataset(f"{bucket}/names/{pattern}", fs=fsspec.filesystem("file"))
    assert names_of(dataset, "s3://bucket/names/") == names_of(local, f"{bucket}/names/")
    assert list(dataset) == list(local) == [name.encode() for name in names_of(dataset, "s3://bucket/names/")]


PARTS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4)


@given(PARTS, st.lists(st.sampled_from(["a", "*", "**", "?", "a*"]), min_size=1, max_size=4))
def test_stars_stand_for_any_number_of_folders(names, parts):
    def texts(parts):
        """All paths of at most four parts that a pattern stands for."""
        if not parts:
            return {""}
        some = {"a": ["a"], "?": ["a", "b"], "*": ["a", "b", "ab"], "a*": ["a", "ab"]}
        rest = texts(parts[1:])
        if parts[0] != "**":
            return {f"{part}/{text}" for part in some[parts[0]] for text in rest}
        found = rest
        for _ in range(4):
            found |= {f"{part}/{text}" for part in some["*"] for text in found if text.count("/") < 4}
        return found

    assert _is_like(names, parts) == ("/".join([*names, ""]) in texts(parts))


def test_urls_in_any_order_also_several_times(cache, bucket, server):
    names = ["many/class3/003.bin", "names/b.png", "many/class1/001.bin", "many/class3/003.bin"]
    dataset = FileDataset([f"s3://bucket/{name}" for name in names], cache=cache)
    assert server.counts()["list"] <= 2  # and not a request for each file
    assert names_of(dataset, "s3://bucket/") == names
    right = [(bucket / name).read_bytes() for name in names]
    assert list(dataset) == right
    assert dataset.__getitems__([3, 1, 0, 1]) == [right[3], right[1], right[0], right[1]]
    assert pickle.loads(pickle.dumps(dataset))[2] == right[2]


def test_more_files_than_a_list_has(cache, bucket, server):
    (bucket / "pages").mkdir()
    names = [f"pages/{'long name ' * 12}{number:04}" for number in range(2300)]
    for name in names:
        (bucket / name).write_bytes(name[-4:].encode())
    server.counts()
    dataset = FileDataset("s3://bucket/pages/*", cache=cache)
    assert server.counts()["list"] == 3  # of 1,000 each
    assert names_of(dataset, "s3://bucket/") == names
    assert dataset.__getitems__(range(0, 2300, 100)) == [name[-4:].encode() for name in names[::100]]


def test_a_few_files_of_a_large_folder_need_no_list_of_the_whole_folder(cache, bucket, server):
    (bucket / "large").mkdir()
    for number in range(5000):
        (bucket / "large" / f"{number:04}").write_bytes(b"%d" % number)
    server.counts()
    dataset = FileDataset([f"s3://bucket/large/{number:04}" for number in (7, 4000, 4999)], cache=cache)
    counts = server.counts()
    assert (counts["list"], counts["head"]) == (1, 2)
    assert list(dataset) == [b"7", b"4000", b"4999"]


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK, FORKSERVER], ids=str)
@pytest.mark.parametrize("limit", ["400 kB", "4 MB"])
def test_a_full_shuffle_reads_the_same_as_from_the_local_disk(way, limit, server, bucket, tmp_path):
    cache = NodeCache(tmp_path / "cache", limit, block=4096)
    dataset = FileDataset("s3://bucket/many/**/*.bin", cache=cache)
    local = FileDataset(f"{bucket}/many/**/*.bin")
    arguments = {"shuffle": True, "seed": 1, "batchify_fn": list}
    with way.loader(dataset, 2, **arguments) as one, DataLoader(local, 2, **arguments) as other:
        for _ in range(2):
            assert list(one) == list(other)
        stats = one.stats().cache
    assert stats.nbytes <= stats.limit
    if limit == "4 MB":  # room for all
        assert stats.fetched == sum(map(len, local))
        assert stats.nbytes == sum(space_of(len(data)) for data in local)
        assert stats.removed == 0


def test_files_that_are_needed_next_are_fetched_ahead(cache, server):
    dataset = FileDataset("s3://bucket/many/**/*.bin", cache=cache)
    with DataLoader(dataset, 20, shuffle=True, seed=1, batchify_fn=list) as loader:
        list(loader)
        assert server.counts()["get"] == 200 - 200 // len(SIZES) - (200 % len(SIZES) > 0)  # empty ones are not fetched
        list(loader)
        assert server.counts()["get"] == 0


@pytest.mark.parametrize("name", ["aa\tb", ".x"])  # obstore refuses a list with a tab, or one after "."
def test_urls_of_a_folder_that_cannot_be_listed(name, cache, bucket):
    (bucket / "names" / name).write_bytes(b"data")
    names = [".x", "a.jpg", "b.png"][not name.startswith(".") :]
    dataset = FileDataset([f"s3://bucket/names/{name}" for name in names], cache=cache)
    assert list(dataset) == [(bucket / "names" / name).read_bytes() for name in names]


def test_an_object_that_is_missing_is_named_at_once(cache):
    with pytest.raises(FileNotFoundError, match=r"no such object, or no such bucket: 's3://bucket/many/none\.bin'"):
        FileDataset(["s3://bucket/many/class1/001.bin", "s3://bucket/many/none.bin"], cache=cache)


@pytest.mark.filterwarnings("ignore:.*on_error")
def test_an_object_that_was_changed_or_removed(cache, bucket):
    paths = [f"s3://bucket/many/class{number}/00{number}.bin" for number in range(3)]
    dataset = FileDataset(paths, cache=cache)
    for number, change in [(1, lambda file: file.write_bytes(b"other")), (2, lambda file: file.unlink())]:
        file = bucket / "many" / f"class{number}" / f"00{number}.bin"
        os.replace(shutil.copy(file, bucket / "copy"), file)  # the files are links
        change(file)
    assert dataset[0] == b""
    with pytest.raises(StoreError, match=r"class1/001\.bin: the object was changed: it had the ETag"):
        dataset[1]
    with pytest.raises(FileNotFoundError, match=r"class2/002\.bin"):
        dataset[2]
    with pytest.raises(FileNotFoundError) as caught:
        dataset.__getitems__([0, 2])
    assert "sample 2 of a bulk read" in "".join(caught.value.__notes__)
    with DataLoader(dataset, 3, on_error=OnError("skip", 2), batchify_fn=list) as loader:
        assert list(loader) == [[b""]]


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ({"busy": 1}, "s3://bucket/names/: the list of its objects did not come within 8.*503"),
        ({"refused": 1}, "s3://bucket/names/: .*AccessDenied"),
    ],
    ids=["busy", "refused"],
)
def test_a_store_that_does_not_list_its_objects(faults, text, server, tmp_path):
    cache = NodeCache(tmp_path / "cache", "4 MB", block=4096, timeout=8)
    server.set(**faults)
    with pytest.raises(StoreError, match=text):
        FileDataset("s3://bucket/names/*", cache=cache)
    server.set(**dict.fromkeys(faults, 0))
    server.set(busy_next=2)
    assert len(FileDataset("s3://bucket/names/*", cache=cache)) == 3


@pytest.mark.parametrize("paths", ["s3://bucket/names/*.jpg", [f"s3://bucket/names/{name}" for name in NAMES[:2]]])
def test_a_list_without_etags(paths, cache, server):
    server.set(no_etag=1)
    dataset = FileDataset(paths, cache=cache)
    assert list(dataset) == [name.encode() for name in NAMES[:2]]
    assert server.counts()["head"] == 2


def test_files_of_an_http_server(cache, server):
    urls = [f"{server.url}/bucket/names/{name}" for name in NAMES[:4]]
    dataset = FileDataset(urls, cache=cache)
    assert list(dataset) == [name.encode() for name in NAMES[:4]]
    with pytest.raises(StoreError, match="an HTTP server does not tell which objects it has; pass a list of URLs"):
        FileDataset(f"{server.url}/bucket/names/*", cache=cache)


def test_many_urls_do_not_start_many_fetchers(cache, server, monkeypatch):
    starts, spawn = [], os.posix_spawn

    def noting(*arguments, **options):
        starts.append(threading.current_thread())
        return spawn(*arguments, **options)

    monkeypatch.setattr(os, "posix_spawn", noting)
    FileDataset([f"{server.url}/bucket/names/{name}" for name in NAMES[:4]], cache=cache)
    assert set(starts) == {threading.current_thread()}


def test_an_http_url_with_escaped_signs_or_a_query(cache, server, bucket):
    pytest.importorskip("aiohttp")
    (bucket / "names" / "x%20y.jpg").write_bytes(b"another file")
    (bucket / "names" / "x y.jpg").write_bytes(b"the file")
    root = f"{server.url}/bucket/names/"
    dataset = FileDataset([root + "x%20y.jpg", root + "a.jpg?signature=1%2F2", root + "a.jpg"], cache=cache)
    assert list(dataset) == [b"the file", b"a.jpg", b"a.jpg"]


def test_an_http_server_that_fails_or_refuses_while_fsspec_reads_it(cache, server):
    pytest.importorskip("aiohttp")
    urls = [f"{server.url}/bucket/names/{name}?signature=1" for name in NAMES[:4]]
    server.set(busy_next=4)
    dataset = FileDataset(urls, cache=cache)
    server.set(busy_next=4)
    assert list(dataset) == [name.encode() for name in NAMES[:4]]
    server.set(refused=1)
    with pytest.raises(StoreError, match="403"):
        FileDataset(urls, cache=cache)
    server.set(refused=0)
    with pytest.raises(FileNotFoundError, match="none"):
        FileDataset([f"{server.url}/bucket/none?signature=1"], cache=cache)


def test_files_of_a_filesystem_of_fsspec(tmp_path, objects):
    pytest.importorskip("fsspec")
    cache = NodeCache(tmp_path / "cache", "4 MB", block=4096)
    root = f"file://{objects}/names/"
    dataset = FileDataset(root + "**/*.jpg", cache=cache)
    right = sorted(name for name in NAMES if name.endswith(".jpg"))
    assert names_of(dataset, root) == right
    assert list(dataset) == [name.encode() for name in right]
    assert list(FileDataset([root + name for name in right[::-1]], cache=cache)) == list(dataset)[::-1]
    with pytest.raises(FileNotFoundError, match="names/x/y"):  # a folder
        FileDataset([root + "x/y"], cache=cache)


def test_symbolic_links_that_fsspec_lists(tmp_path):
    pytest.importorskip("fsspec")
    (tmp_path / "files").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"data")
    os.utime(tmp_path / "a", (1, 1))
    for name, target in (("a", "a"), ("folder", "folder"), ("none", "none")):
        (tmp_path / "files" / name).symlink_to(tmp_path / target)
    cache = NodeCache(tmp_path / "cache", "4 MB", block=4096)
    for paths in (f"file://{tmp_path}/files/*", [f"file://{tmp_path}/files/a"]):
        assert list(FileDataset(paths, cache=cache)) == [b"data"]


def test_a_file_is_not_taken_for_a_folder(tmp_path):
    pytest.importorskip("fsspec")
    (tmp_path / "a").write_bytes(b"data")
    with pytest.raises(ValueError, match="no file matches this pattern"):
        FileDataset(f"file://{tmp_path}/a/**", cache=NodeCache(tmp_path / "cache", "4 MB", block=4096))


def test_forks_while_threads_read_keep_no_file_open(cache):
    dataset, ended = FileDataset("s3://bucket/many/**/*.bin", cache=cache), threading.Event()
    list(dataset)

    def read():
        while not ended.is_set():
            list(dataset)

    def open_blocks():
        return [name for name in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if "/blocks/" in name]

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            assert in_child(lambda: str(open_blocks())) == "[]"
    finally:
        ended.set()
        for thread in threads:
            thread.join()
