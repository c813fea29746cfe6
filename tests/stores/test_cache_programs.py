"""Random programs read objects of a store through a cache, and the same files on the local disk.

Their batches, states and blocks must be equal, for each format, order and kind of workers, and for each size of the
cache: programs leave epochs, save and load states, and open new loaders in the same folder. Each run has the same
programs; `GLUONLOADER_PROGRAMS=2000` runs so many others.
"""

from __future__ import annotations

import itertools
import os
import pickle
import re
from dataclasses import dataclass, field, fields

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, THREAD, examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from stores.store_server import store_server

from gluonloader import (
    BlockShuffleSampler,
    ConcatDataset,
    FileDataset,
    NodeCache,
    RandomSampler,
    Ranks,
    StackDataset,
    Subset,
    WeightedSampler,
)
from gluonloader.declared import needed_blocks
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.stores.folder import space_of
from gluonloader.text import PackedDataset, PackingSampler, TokenDataset
from gluonloader.types import Segments

pytest.importorskip("obstore")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* ranks divide its order"),
    pytest.mark.filterwarnings("ignore:.*has no epoch"),
    pytest.mark.filterwarnings("ignore:last_batch='discard' drops all"),
    pytest.mark.filterwarnings("ignore:resuming"),
]

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "0"))
TOO_MANY = r"the next \d+ batches need"
SLOW = "a full shuffle would fetch a block for most samples"
SEGMENTS = [item.name for item in fields(Segments)]
NUMBERS = itertools.count()
# To make a program smaller takes minutes, since each one starts a fetcher.
SETTINGS = settings(
    suppress_health_check=list(HealthCheck), derandomize=not PROGRAMS, phases=[Phase.explicit, Phase.generate]
)


class Backwards:
    """The sampler of a user."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(range(self.length - 1, -1, -1))


@dataclass(frozen=True)
class Program:
    """What is read, and how.

    Attributes:
        lengths: of the records or documents of each file; of single files, those of the files of each folder.
        windows: (size, extra, stride) of windows over documents.
        view: what is made of the datasets of all files.
        order: of the samples.
        steps: what the program does; see `run`.
    """

    kind: str
    lengths: list[list[int]]
    windows: tuple[int, int, int]
    view: str
    order: str
    buffer: int
    batch_size: int
    last_batch: str
    ranks: tuple[int, int] | None
    way: object
    block: int
    room: int
    steps: list[tuple[str, int]] = field(default_factory=list)


LENGTHS = st.lists(
    st.one_of(st.integers(0, 60), st.integers(0, 1500), st.sampled_from([0, 4096, 4090, 9000])), min_size=1, max_size=60
)
ORDERS = ("in order", "blocks", "blocks", "random", "shuffle", "weighted", "user's", "backwards list")
STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "leave", "resume", "again", "epoch"]), st.integers(1, 6)), max_size=5
)
PROGRAMS_OF = st.builds(
    Program,
    kind=st.sampled_from(["records", "documents", "windows", "packed", "files"]),
    lengths=st.lists(LENGTHS, min_size=2, max_size=2),
    windows=st.tuples(st.integers(1, 700), st.integers(0, 2), st.integers(1, 1500)),
    view=st.sampled_from(["one", "one", "subset", "concat", "stack", "transform", "concat of subsets"]),
    order=st.sampled_from(ORDERS),
    buffer=st.integers(1, 4),
    batch_size=st.integers(1, 12),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
    ranks=st.one_of(st.none(), st.sampled_from([(0, 2), (1, 2), (2, 3)])),
    way=st.sampled_from([SERIAL] * 4 + [THREAD] * 2 + [FORK]),
    block=st.sampled_from([4096, 5000, 8192]),
    room=st.one_of(st.integers(16, 40), st.integers(100, 200)),
    steps=STEPS,
)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A folder whose files are objects of a store, at s3://bucket."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "bucket").mkdir()
    with store_server(folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield folder / "bucket"


def write_files(program, folder):
    """Writes the files of a program; the paths of the new files, without endings."""
    rng, number = np.random.default_rng(3), next(NUMBERS)
    names = [f"{number}-{place}" for place in range(len(program.lengths))]
    for name, lengths in zip(names, program.lengths, strict=True):
        if program.kind == "records":
            with IndexedRecordIO(folder / f"{name}.rec", "w") as file:
                for key, length in enumerate(lengths):
                    file.write_idx(key, rng.bytes(length))
        elif program.kind == "files":
            (folder / name).mkdir()
            for key, length in enumerate(lengths):
                (folder / name / f"{key:02}").write_bytes(rng.bytes(length))
        else:
            TokenDataset.write(folder / name, [rng.integers(0, 60000, length) for length in lengths])
    return names


def double(sample):
    return sample * 2 if isinstance(sample, bytes) else np.append(sample, sample)


def join(*fields):
    return [double(one) for one in fields]


class Reader:
    """The datasets and loaders of a program over files in one place.

    Args:
        paths: of the files, without endings; may be URLs.
        cache: makes the cache; None for local files.
    """

    def __init__(self, program, paths, cache=None):
        self.program, self.paths, self.cache = program, paths, cache
        self.seed = 1

    def open(self):
        """The dataset, opened again."""
        program = self.program
        cached = {} if self.cache is None else {"cache": self.cache()}
        if program.kind == "records":
            files = [RecordFileDataset(f"{path}.rec", **cached) for path in self.paths]
        elif program.kind == "files":
            files = [FileDataset(f"{path}/*", **cached) for path in self.paths]
        else:
            files = [TokenDataset(f"{path}.bin", **cached) for path in self.paths]
        self.files = files
        if program.kind == "windows":
            size, extra, stride = program.windows
            files = [file.windows(size, extra, stride) for file in files]
        blocks = [[len(file)] if program.kind == "files" else file.blocks for file in files]
        data, self.blocks = files[0], blocks[0]
        if program.view == "subset":
            data = Subset(files[0], list(range(0, len(files[0]), 2))[::-1])
        elif program.view == "concat":
            data, self.blocks = ConcatDataset(*files), blocks[0] + blocks[1]
        elif program.view == "concat of subsets":
            data = ConcatDataset(*[Subset(file, range(1, len(file), 3)) for file in files])
        elif program.view == "stack" and program.kind != "packed":
            least = min(map(len, files))
            data = StackDataset(*[Subset(file, range(least)) for file in files])
        elif program.view == "transform" and program.kind != "packed":
            data = data.transform(double)
        return data

    def loader(self, blocks):
        """A loader over the dataset, opened again; `blocks` are those of the remote files."""
        program, data = self.program, self.open()
        last_batch = "keep" if program.kind == "packed" else program.last_batch  # rows cannot be in a state
        rest = {"last_batch": last_batch, "batchify_fn": list, "seed": self.seed}
        if program.ranks is not None:
            rest["ranks"] = Ranks(*program.ranks, "uneven")
        length = len(data)
        if sum(blocks) != length:
            blocks = [3] * (length // 3) + [length % 3]
        orders = {
            "in order": lambda: None,
            "blocks": lambda: BlockShuffleSampler(blocks, program.buffer, seed=self.seed),
            "random": lambda: RandomSampler(length, seed=self.seed),
            "weighted": lambda: WeightedSampler(np.arange(1, length + 1), 2 * length, seed=self.seed),
            "user's": lambda: Backwards(length),
            "backwards list": lambda: list(range(-1, -length - 1, -1)),
        }
        if program.kind == "packed":
            order = orders["blocks"]() if program.order == "blocks" else None
            sampler = PackingSampler(data.lengths, 500, order, window=7, seed=self.seed)
            return program.way.loader(PackedDataset(data), program.batch_size, sampler=sampler, **rest)
        if program.order == "shuffle":
            return program.way.loader(data, program.batch_size, shuffle=True, **rest)
        order = orders[program.order] if length else orders["in order"]
        return program.way.loader(data, program.batch_size, sampler=order(), **rest)


def run(reader, blocks):
    """What a program sees: batches, states and what comes next."""
    seen, loader = [], reader.loader(blocks)
    iterator = iter(loader)
    for step, count in [*reader.program.steps, ("epoch", 1)]:
        if step == "read":
            seen.append(list(itertools.islice(iterator, count)))
        elif step == "leave":
            iterator = iter(loader)
        elif step == "resume":
            state = loader.state_dict()
            loader.close()
            loader = reader.loader(blocks)
            loader.load_state_dict(state)
            iterator = iter(loader)
        elif step == "again":  # another seed, at the start
            loader.close()
            reader.seed += 1
            loader = reader.loader(blocks)
            iterator = iter(loader)
        else:
            seen.append(list(iterator))
            iterator = iter(loader)
        seen.append(loader.state_dict())
    loader.close()
    return seen


OF_FILES_HERE = {"content", "check"}  # a state has a hash of the tokens of such a file


def plain(value):
    """Samples as lists, bytes and ints, and states, which can be compared."""
    if isinstance(value, Segments):
        return plain([getattr(value, name) for name in SEGMENTS])
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in OF_FILES_HERE}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def space_used(folder):
    files = [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return sum(os.stat(file).st_blocks * 512 for file in files if not file.endswith((".log", "lock")))


def check(program, bucket, folder):
    names = write_files(program, bucket)
    limit = program.room * space_of(program.block)
    local = Reader(program, [str(bucket / name) for name in names])

    def cache():
        return NodeCache(folder, limit, block=program.block)

    remote = Reader(program, [f"s3://bucket/{name}" for name in names], cache)
    remote.open(), local.open()
    assert sum(remote.blocks) == sum(local.blocks)
    try:
        seen = run(remote, remote.blocks)
    except ValueError as error:
        if re.search(f"{TOO_MANY}|{SLOW}", str(error)) is None:
            raise
        return
    stats = cache().stats()
    assert plain(seen) == plain(run(local, remote.blocks))
    assert 0 < stats.nbytes <= stats.limit == limit
    assert space_used(folder) <= limit
    assert (stats.failed, stats.damaged) == (0, 0)
    assert stats.blocks + stats.removed == stats.misses


@settings(SETTINGS, max_examples=PROGRAMS or max(1, examples(25)))
@given(program=PROGRAMS_OF)
def test_a_random_program_reads_the_same_from_a_store_and_from_the_local_disk(program, bucket, tmp_path_factory):
    check(program, bucket, tmp_path_factory.mktemp("cache"))


@settings(SETTINGS, max_examples=PROGRAMS or max(1, examples(6)))
@given(
    kind=st.sampled_from(["records", "documents"]),
    order=st.sampled_from(["in order", "blocks"]),
    way=st.sampled_from([SERIAL, THREAD]),
    seed=st.integers(0, 1000),
    room=st.integers(24, 40),
)
def test_an_epoch_in_a_known_order_fetches_each_block_once(kind, order, way, seed, room, bucket, tmp_path_factory):
    lengths = [np.random.default_rng(seed).integers(0, 3000, 700).tolist()]
    program = Program(kind, lengths, (1, 0, 1), "one", order, 2, 2, "keep", None, way, 4096, room)
    (name,) = write_files(program, bucket)
    cache = NodeCache(tmp_path_factory.mktemp("cache"), room * space_of(4096), block=4096)
    reader = Reader(program, [f"s3://bucket/{name}"], lambda: cache)
    before = cache.stats()
    loader = reader.loader(reader.open().blocks)
    opened = cache.stats()
    (needed,) = needed_blocks(reader.files[0], range(700))
    assert len(needed.blocks) > 2 * room
    list(loader)
    stats = cache.stats()
    # Blocks of the next epoch are fetched before the end of this one.
    assert len(needed.blocks) <= stats.misses + stats.hits - opened.hits <= len(needed.blocks) + stats.blocks
    assert stats.misses - opened.misses <= len(needed.blocks) + stats.blocks
    assert stats.fetched - before.fetched >= sum(block.stop - block.start for block in needed.blocks)
    loader.close()


@pytest.mark.parametrize("windows", [(300, 1), (64, 0, 10), (3000, 1)])
def test_windows_lie_in_one_block_each_also_after_a_pickle(windows, bucket, tmp_path):
    rng = np.random.default_rng(0)
    local = TokenDataset.write(bucket / "pickled", [rng.integers(0, 60000, length) for length in range(0, 900, 20)])
    remote = TokenDataset("s3://bucket/pickled.bin", cache=NodeCache(tmp_path / "cache", "4 MB", block=4096))
    data, right = remote.windows(*windows), local.windows(*windows)
    copied = pickle.loads(pickle.dumps(data))
    assert np.array_equal(list(copied), list(right))
    assert needed_blocks(copied, range(5))[0].blocks == needed_blocks(data, range(5))[0].blocks
    with FORKSERVER.loader(data, 4) as one, SERIAL.loader(right, 4) as other:
        assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]
