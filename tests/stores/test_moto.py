"""The cache over an independent implementation of S3: the server of moto."""

import numpy as np
import pytest

from gluonloader import BlockShuffleSampler, DataLoader, FileDataset, NodeCache
from gluonloader.__main__ import main
from gluonloader.errors import StoreError
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.text import TokenDataset

pytest.importorskip("obstore")
server = pytest.importorskip("moto.server")
obstore_store = pytest.importorskip("obstore.store")


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """A store of obstore for a bucket of moto's server, which the environment names."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    settings = {
        "AWS_ENDPOINT": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    import boto3

    boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT"]).create_bucket(Bucket="train")
    yield boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT"])
    running.stop()


def test_batches_are_those_of_the_local_file_and_a_changed_object_is_noticed(bucket, tmp_path):
    path = str(tmp_path / "a.rec")
    with IndexedRecordIO(path, "w") as file:
        for number in range(400):
            file.write_idx(number, np.full(500, number % 251, np.uint8).tobytes())
    for ending in ("rec", "idx"):
        bucket.upload_file(f"{path[:-3]}{ending}", "train", f"a.{ending}")
    cache = NodeCache(tmp_path / "cache", "140 kB", block="5 kB")
    data = RecordFileDataset("s3://train/a.rec", cache=cache)

    def batches(dataset):
        with DataLoader(dataset, 16, sampler=BlockShuffleSampler(data.blocks, 3, seed=1), num_workers=2) as loader:
            return [batch for _ in range(2) for batch in loader]

    assert batches(data) == batches(RecordFileDataset(path))
    assert 0 < cache.stats().nbytes <= 140 * 1024
    bucket.put_object(Bucket="train", Key="a.rec", Body=bytes(len(data) * 500))
    with pytest.raises(StoreError, match="was changed"):
        [data[number] for number in range(400)]


def test_an_object_that_stands_for_a_folder_is_no_file(bucket, tmp_path):
    names = ["d/a.jpg", "d/empty.jpg", "d/x/b.jpg"]
    for name in names:
        bucket.put_object(Bucket="train", Key=name, Body=b"" if "empty" in name else name.encode())
    for folder in ("d/", "d/x/", "d/y/"):
        bucket.put_object(Bucket="train", Key=folder)
    cache = NodeCache(tmp_path / "cache", "140 kB", block="5 kB")
    assert list(FileDataset("s3://train/d/*", cache=cache).paths) == [f"s3://train/{name}" for name in names[:2]]
    dataset = FileDataset("s3://train/d/**", cache=cache)
    assert dict(zip(dataset.paths, dataset, strict=True)) == {
        f"s3://train/{name}": b"" if "empty" in name else name.encode() for name in names
    }


def test_an_object_that_stands_for_a_folder_with_the_name_of_a_file(bucket, tmp_path):
    for name in ("f/a", "f/a/b", "f/c"):
        bucket.put_object(Bucket="train", Key=name, Body=name.encode())
    for folder in ("f/a/", "f/e/"):
        bucket.put_object(Bucket="train", Key=folder)
    cache = NodeCache(tmp_path / "cache", "140 kB", block="5 kB")
    files = {f"s3://train/{name}": name.encode() for name in ("f/a", "f/a/b", "f/c")}
    for paths in ("s3://train/f/**", list(files)):
        dataset = FileDataset(paths, cache=cache)
        assert list(zip(dataset.paths, dataset, strict=True)) == list(files.items())
    assert list(FileDataset("s3://train/f/a/*", cache=cache).paths) == ["s3://train/f/a/b"]
    for folder in ("f/a/", "f/e/", "f/e"):
        with pytest.raises(FileNotFoundError, match=f"train/{folder}'"):
            FileDataset([f"s3://train/{folder}"], cache=cache)


@pytest.mark.parametrize("key", ["/a.bin", "d//a.bin", "e/../a.bin"])
def test_a_key_that_obstore_does_not_read_is_an_error_at_once(bucket, tmp_path, key):
    for name in ("a.bin", key):
        bucket.put_object(Bucket="train", Key=name, Body=name.encode())
    cache = NodeCache(tmp_path / "cache", "140 kB", block="5 kB", timeout=1000)
    patterns = [f"s3://train/{key[:-5]}*", *(["s3://train/**"] if "/" in key[1:] else [])]
    for paths in ([f"s3://train/{key}"], *patterns):
        with pytest.raises(StoreError, match="correct the URL, or rename the object"):
            FileDataset(paths, cache=cache)
    with pytest.raises(StoreError, match="correct the URL, or rename the object"):
        cache.open(f"s3://train/{key}")


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder with files that commands pack; temporary files lie beside it."""
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "a.jpg").write_bytes(bytes(2000))
    (tmp_path / "a.jsonl").write_text('{"ids": [1, 2, 3]}\n{"ids": [4]}\n')
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path


def test_commands_write_to_a_store(bucket, sources, capsys):
    cache = NodeCache(sources / "cache", "140 kB", block="5 kB")
    assert main(["records", "make", "s3://train/x/a.rec", str(sources / "images"), "--num-workers", "0"]) == 0
    assert "s3://train/x/a.rec: 1 of 1 images" in capsys.readouterr().out
    assert bytes(2000) in RecordFileDataset("s3://train/x/a.rec", cache=cache)[0]
    made = ["--out", "s3://train/b", "--key", "ids", "--num-workers", "0", "--json"]
    assert main(["tokens", "make", str(sources / "a.jsonl"), *made]) == 0
    assert '"file": "s3://train/b"' in capsys.readouterr().out
    assert [row.tolist() for row in TokenDataset("s3://train/b.bin", cache=cache)] == [[1, 2, 3], [4]]
    assert not list((sources / "temporary").iterdir())


def test_files_that_the_store_does_not_take_are_kept(bucket, sources, capsys):
    assert main(["records", "make", "s3://nowhere/a.rec", str(sources / "images"), "--num-workers", "0"]) == 2
    (folder,) = (sources / "temporary").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["a.idx", "a.rec"]
    assert f"the file is kept as {folder}/a.rec: copy it, or run the command again" in capsys.readouterr().err
    for out, source in (("s3://train/a.rec", "none"), ("s3://train/", "images")):
        assert main(["records", "make", out, str(sources / source), "--num-workers", "0"]) == 2
    assert "s3://train/: it is a folder; pass the URL of a file" in capsys.readouterr().err
    assert list((sources / "temporary").iterdir()) == [folder]
