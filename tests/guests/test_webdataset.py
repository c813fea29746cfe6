"""WebDataset and Hugging Face are split by their own means: over ranks and workers, each sample comes once."""

import io
import pickle
import tarfile
import warnings

import pytest
from conftest import FORK, SERIAL, SPAWN, THREAD, Way, load_or_skip

from gluonloader import IterableDataset, Ranks, merge_states

# WebDataset leaves the closing of a file to the garbage collection if the file is not read to its end.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <_io:pytest.PytestUnraisableExceptionWarning"),
]
FILES, SAMPLES = 6, 100
WORKERS = [SERIAL, Way("fork-1", {"num_workers": 1, "start_method": "fork"}), FORK]


@pytest.fixture(scope="module")
def wds():
    load_or_skip("torch")
    return load_or_skip("webdataset")


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("urls")
    for number in range(FILES):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for sample in range(number * SAMPLES, (number + 1) * SAMPLES):
                info = tarfile.TarInfo(f"{sample:05}.cls")
                content = str(sample).encode()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return str(folder / f"{{0..{FILES - 1}}}.tar")


def label(sample):
    return int(sample["cls"])


class Opened:
    """Notes each URL that is opened in a file, since workers are other processes."""

    def __init__(self, path):
        self.path = path

    def __call__(self, urls):
        for url in urls:
            with open(self.path, "a") as file:
                file.write(url["url"] + "\n")
            yield url

    def counts(self):
        lines = self.path.read_text().splitlines()
        return sorted(lines.count(line) for line in set(lines))


def read(dataset, count, way, field=None):
    """The samples of each rank, or a field of them."""
    samples = []
    for index in range(count):
        with way.loader(dataset, 7, ranks=(index, count) if count > 1 else None) as loader:
            samples.append([sample for batch in loader for sample in (batch[field] if field else batch).tolist()])
    return samples


def pipeline(wds, urls, **options):
    return wds.WebDataset(urls, **{"shardshuffle": 100, **options}).shuffle(100).map(label)


@pytest.mark.parametrize("way", WORKERS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_usual_recipe_of_webdataset_gives_each_sample_once(wds, urls, count, way):
    samples = sum(read(pipeline(wds, urls), count, way), [])
    assert len(samples) == 600
    assert sorted(samples) == list(range(600)) != samples


@pytest.mark.parametrize("way", [SERIAL, FORK, SPAWN], ids=str)
def test_each_file_is_opened_by_a_single_worker(wds, urls, tmp_path, way):
    opened = Opened(tmp_path / "opened")
    dataset = wds.DataPipeline(wds.SimpleShardList(urls), opened, wds.tarfile_to_samples(), wds.map(label))
    assert sorted(sum(read(dataset, 2, way), [])) == list(range(600))
    assert opened.counts() == [1] * FILES


def test_a_file_is_shared_if_there_are_more_shards_than_files(wds, urls, tmp_path):
    opened = Opened(tmp_path / "opened")
    dataset = wds.DataPipeline(
        wds.SimpleShardList(urls), wds.shuffle(100), opened, wds.tarfile_to_samples(), wds.shuffle(50), wds.map(label)
    )
    assert sorted(read(IterableDataset(dataset, num_shards=8), 1, THREAD)[0]) == list(range(600))
    assert opened.counts() == [1, 1, 1, 1, 2, 2]


def test_the_order_is_a_function_of_seed_and_epoch(wds, urls):
    def epochs(dataset, way, **options):
        with way.loader(IterableDataset(dataset, num_shards=2), 7, **options) as loader:
            return [[batch.tolist() for batch in loader] for _ in range(2)]

    for options in ({}, {"detshuffle": True}, {"seed": 3}):
        first, second = epochs(pipeline(wds, urls, **options), SERIAL)
        assert first != second
        for way in (FORK, THREAD):
            assert epochs(pipeline(wds, urls, **options), way) == [first, second]
        assert epochs(pipeline(wds, urls, **options), SERIAL, seed=1)[0] != first


@pytest.mark.filterwarnings("ignore:resuming")
def test_positions_of_ranks(wds, urls):
    dataset, states, seen = pipeline(wds, urls), [], []
    for index in range(2):
        with FORK.loader(IterableDataset(dataset, num_shards=6), 7, ranks=(index, 2)) as loader:
            iterator = iter(loader)
            seen += [sample for _ in range(5 + index) for sample in next(iterator).tolist()]
            states.append(loader.state_dict())
    for count in (1, 3):
        rest = []
        for index in range(count):
            with SERIAL.loader(IterableDataset(dataset, num_shards=6), 7, ranks=(index, count)) as loader:
                loader.load_state_dict(merge_states(states))
                rest += [sample for batch in loader for sample in batch.tolist()]
        assert sorted(seen + rest) == list(range(600))


def test_steps_and_caches(wds, urls):
    dataset = IterableDataset(pipeline(wds, urls)).filter(lambda x: x % 2).transform(lambda x: -x)
    assert sorted(sum(read(dataset, 2, FORK), [])) == list(range(-599, 0, 2))
    assert sorted(read(IterableDataset(pipeline(wds, urls)).take(50), 1, FORK)[0])[49] < 600
    cached = wds.WebDataset(urls, shardshuffle=False).map(label).mcached()
    assert sorted(read(cached, 1, THREAD)[0]) == list(range(600))
    counted = wds.WebDataset(urls, shardshuffle=False).map(label).slice(50)
    assert sorted(sum(read(counted, 2, FORK), [])) == list(range(50))
    epoch = wds.WebDataset(urls, shardshuffle=100).map(label).with_epoch(650)
    samples = sum(read(epoch, 2, FORK), [])
    assert len(samples) == 650
    assert set(samples) == set(range(600))


def test_lengths_of_shards(wds, urls):
    for index in range(3):
        ranks = Ranks(index, 3, "drop", shard_lengths=[200, 200, 200])
        with SERIAL.loader(pipeline(wds, urls), 7, ranks=ranks) as loader:
            assert len(list(loader)) == len(loader) == 29


def test_several_processes(wds, urls, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="each process would read all URLs; pass ranks='env'"):
        SERIAL.loader(pipeline(wds, urls), 7)
    with pytest.raises(ValueError, match="would both split the data; remove nodesplitter=split_by_node"):
        SERIAL.loader(pipeline(wds, urls, nodesplitter=wds.split_by_node), 7, ranks="env")
    samples = read(pipeline(wds, urls, nodesplitter=wds.split_by_node), 1, FORK)[0]
    with SERIAL.loader(IterableDataset(pipeline(wds, urls), num_shards=2), 7, ranks="env") as loader:
        assert sorted(samples) == sorted(sample for batch in loader for sample in batch.tolist())
    assert len(samples) == 300
    dataset = wds.DataPipeline(wds.SimpleShardList(urls), wds.shuffle(100), wds.split_by_node, wds.tarfile_to_samples())
    with pytest.raises(ValueError, match="may shuffle URLs differently before split_by_node; remove it"):
        FORK.loader(dataset, 7)


def test_resampled_urls(wds, urls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resampled = wds.WebDataset(urls, resampled=True).map(label)
    with pytest.raises(ValueError, match="it draws URLs at random, so shards would overlap; pass resampled=False"):
        FORK.loader(resampled, 7)
    with SERIAL.loader(resampled, 7) as loader:
        assert len(next(iter(loader))) == 7


def test_a_pipeline_is_not_changed(wds, urls):
    dataset = pipeline(wds, urls)
    before = pickle.dumps(dataset)
    read(dataset, 2, THREAD)
    assert pickle.dumps(dataset) == before


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def numbers(files):
    for file in files:
        for sample in range(file * SAMPLES, (file + 1) * SAMPLES):
            yield {"x": sample}


@pytest.fixture
def streamed():
    datasets = load_or_skip("datasets")
    return datasets.IterableDataset.from_generator(numbers, gen_kwargs={"files": list(range(FILES))})


def read_x(dataset, count, way):
    return sum(read(dataset, count, way, "x"), [])


@pytest.mark.parametrize("way", WORKERS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_hugging_face_gives_each_sample_once(streamed, count, way):
    samples = read_x(streamed.shuffle(seed=1, buffer_size=100), count, way)
    assert len(samples) == 600
    assert sorted(samples) == list(range(600)) != samples


def test_hugging_face_with_more_shards_than_files(streamed):
    assert sorted(read_x(IterableDataset(streamed, num_shards=8), 2, FORK)) == list(range(600))


def test_split_dataset_by_node(streamed):
    distributed = load_or_skip("datasets.distributed")
    parts = [distributed.split_dataset_by_node(streamed, rank, 2) for rank in range(2)]
    assert sorted(read_x(parts[0], 1, FORK) + read_x(parts[1], 1, FORK)) == list(range(600))
    for part in (parts[0], IterableDataset(parts[0]).shard(2, 0), IterableDataset(parts[0]) + []):
        with pytest.raises(ValueError, match="split_dataset_by_node and the argument ranks would both split the data"):
            FORK.loader(part, 7, ranks=(0, 2))
