"""Sets up loaders that read from an object store: gluonloader, and others, each with data in its own format.

All batches are tensors of 32 samples. Each loader that shuffles through a cache or a buffer mixes about 8 chunks.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gluonloader import BlockShuffleSampler, DataLoader, NodeCache
from gluonloader.records import IndexedRecordIO, RecordFileDataset

Sample = NDArray[np.int64]

WORDS: Final = 1280  # of a sample, of 8 bytes each
CHUNK: Final = 4 << 20  # bytes
_BATCH: Final = 32
_MIXED: Final = 8  # chunks
_BUCKET: Final = "bucket"
_STUBS: Final = str(Path(__file__).parent.parent / "tests" / "pytorch" / "wild" / "stubs")


def samples(count: int) -> Iterator[Sample]:
    """Yields random words that cannot be compressed; the XOR of the words of a sample is its number."""
    rng = np.random.default_rng(0)
    for number in range(count):
        words = rng.integers(-(2**63), 2**63 - 1, WORDS)
        words[-1] = np.bitwise_xor.reduce(words[:-1]) ^ number
        yield words


def numbers_of(batch: Any) -> Sample:
    """Returns the numbers of the samples of a batch; those of damaged samples are no numbers of samples."""
    numbers: Sample = np.bitwise_xor.reduce(np.asarray(batch), axis=1)
    return numbers


@dataclass(frozen=True)
class Place:
    """Where the data are, and how they are read.

    Attributes:
        root: folder that contains the bucket.
        endpoint: URL of the server.
        samples: number of samples.
        cache: an empty folder for the cache.
        limit: bytes of the disk that the cache may use.
        workers: number of workers.
    """

    root: Path
    endpoint: str
    samples: int
    cache: Path
    limit: int
    workers: int

    def path(self, name: str) -> Path:
        """The path of an object, for the writers."""
        return self.root / _BUCKET / name

    def url(self, name: str) -> str:
        """The URL of an object, for the loaders."""
        return f"s3://{_BUCKET}/{name}"


class StoreLoader:
    """A loader that reads from an object store."""

    name: str
    packages: tuple[str, ...]  # modules that it needs

    def absence(self) -> str | None:
        """Why it cannot be measured here; None if it can."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        return f"{', '.join(missing)} not installed" if missing else None

    def load(self) -> None:
        """Imports what it needs."""
        for package in self.packages:
            importlib.import_module(package)

    def write(self, place: Place) -> None:
        """Writes the data in the format of this loader."""
        raise NotImplementedError

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        """Yields the batches of one epoch after another."""
        raise NotImplementedError


class Gluonloader(StoreLoader):
    """A `.rec` file through a `NodeCache`."""

    name = "gluonloader"
    packages = ("obstore", "torch")

    def write(self, place: Place) -> None:
        with IndexedRecordIO(place.path("train.rec"), "w") as file:
            for number, words in enumerate(samples(place.samples)):
                file.write_idx(number, words.tobytes())

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        data = RecordFileDataset(place.url("train.rec"), cache=NodeCache(place.cache, place.limit, block=CHUNK))
        order = BlockShuffleSampler(data.blocks, buffer=_MIXED, seed=1)
        training = data.transform(words_of)
        with DataLoader(training, _BATCH, sampler=order, num_workers=place.workers, seed=1, output="torch") as loader:
            while True:
                yield loader


def words_of(record: bytes) -> Sample:
    """Returns the words of a sample from its bytes."""
    return np.frombuffer(record, np.int64)


class Streaming(StoreLoader):
    """MosaicML Streaming, with a shuffle block that mixes some 9 shards: its default uses all shards at once.

    Each worker drops the connection that the main program has opened: workers that share it mix up their answers.
    """

    name = "MosaicML Streaming"
    packages = ("streaming", "boto3")

    def load(self) -> None:
        _streaming()
        super().load()

    def write(self, place: Place) -> None:
        columns = {"words": f"ndarray:int64:{WORDS}"}
        writer = _streaming().MDSWriter
        with writer(out=str(place.path("mds")), columns=columns, size_limit=CHUNK) as out:
            for words in samples(place.samples):
                out.write({"words": words})

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        streaming = _streaming()
        data = streaming.StreamingDataset(
            remote=place.url("mds"), local=str(place.cache), cache_limit=place.limit, batch_size=_BATCH, shuffle=True,
            shuffle_seed=1, shuffle_algo="py1e", shuffle_block_size=4000,
        )  # fmt: skip
        loader = streaming.StreamingDataLoader(
            data, batch_size=_BATCH, num_workers=place.workers, worker_init_fn=_drop_connection, persistent_workers=True
        )
        while True:
            yield (batch["words"] for batch in loader)


def _streaming() -> Any:
    """The package, with a stand-in for torchvision, which it imports and does not use here."""
    if _STUBS not in sys.path:
        sys.path.insert(0, _STUBS)
    return importlib.import_module("streaming")


def _drop_connection(worker: int) -> None:
    data: Any = importlib.import_module("torch").utils.data.get_worker_info().dataset
    for stream in data.streams:
        stream._downloader.clean_up()


class LitData(StoreLoader):
    """LitData, with boto3: with obstore, it refuses a server without TLS."""

    name = "LitData"
    packages = ("litdata", "boto3")

    def write(self, place: Place) -> None:
        torch = importlib.import_module("torch")
        writer = importlib.import_module("litdata.streaming.writer").BinaryWriter
        out = writer(str(place.path("litdata")), chunk_bytes=CHUNK)
        for number, words in enumerate(samples(place.samples)):
            out[number] = torch.from_numpy(words)
        out.done()
        out.merge()

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        litdata: Any = importlib.import_module("litdata")
        downloader: Any = importlib.import_module("litdata.streaming.downloader")
        downloader._OBSTORE_AVAILABLE = False
        data = litdata.StreamingDataset(
            place.url("litdata"), cache_dir=str(place.cache), max_cache_size=place.limit, shuffle=True, seed=1,
            storage_options={"endpoint_url": place.endpoint},
        )  # fmt: skip
        loader = litdata.StreamingDataLoader(
            data, batch_size=_BATCH, num_workers=place.workers, persistent_workers=True
        )
        while True:
            yield loader


class WebDataset(StoreLoader):
    """WebDataset with its cache folder, which reads tar files from the same server by HTTP."""

    name = "WebDataset"
    packages = ("webdataset", "torch")

    def write(self, place: Place) -> None:
        writer = importlib.import_module("webdataset").ShardWriter
        place.path("wds").mkdir()
        with writer(str(place.path("wds/%06d.tar")), maxsize=CHUNK, verbose=0) as out:
            for number, words in enumerate(samples(place.samples)):
                out.write({"__key__": f"{number:08d}", "bin": words.tobytes()})

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        wds, torch = importlib.import_module("webdataset"), importlib.import_module("torch")
        shards = sorted(path.name for path in place.path("wds").iterdir())
        data = wds.WebDataset(
            [f"{place.endpoint}/{_BUCKET}/wds/{name}" for name in shards],
            cache_dir=str(place.cache), cache_size=place.limit, shardshuffle=len(shards), seed=1,
        )  # fmt: skip
        data = data.shuffle(1000).map(lambda sample: torch.frombuffer(bytearray(sample["bin"]), dtype=torch.int64))
        data = data.batched(_BATCH, collation_fn=torch.stack)
        loader = wds.WebLoader(data, batch_size=None, num_workers=place.workers, persistent_workers=True)
        while True:
            yield loader


class Ranges:
    """A dataset for torch's loader that requests each sample by boto3; those of a batch in 16 threads."""

    def __init__(self, place: Place) -> None:
        self._count = place.samples
        self._pool: ThreadPoolExecutor | None = None  # of this process, as the client
        self._client: Any = None

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        if self._pool is None:
            config = importlib.import_module("botocore.config").Config(max_pool_connections=16)
            self._client = importlib.import_module("boto3").client("s3", config=config)
            self._pool = ThreadPoolExecutor(16)
        return list(self._pool.map(self.__getitem__, indices))

    def __getitem__(self, index: int) -> Sample:
        start = index * WORDS * 8
        span = f"bytes={start}-{start + WORDS * 8 - 1}"
        answer = self._client.get_object(Bucket=_BUCKET, Key="samples.bin", Range=span)
        return np.frombuffer(bytearray(answer["Body"].read()), np.int64)


class Torch(StoreLoader):
    """torch's loader over requests of boto3, in random order, without a cache."""

    name = "torch, boto3"
    packages = ("torch", "boto3")

    def write(self, place: Place) -> None:
        with open(place.path("samples.bin"), "wb") as file:
            for words in samples(place.samples):
                file.write(words.tobytes())

    def epochs(self, place: Place) -> Iterator[Iterable[Any]]:
        torch = importlib.import_module("torch")
        loader = torch.utils.data.DataLoader(
            Ranges(place), _BATCH, shuffle=True, num_workers=place.workers, persistent_workers=True
        )
        while True:
            yield loader


LOADERS: Final = (Gluonloader(), Streaming(), LitData(), WebDataset(), Torch())
