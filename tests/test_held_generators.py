"""Datasets that hold random generators: their numbers do not repeat, and do not depend on the workers."""

import json
import random
from itertools import chain

import numpy as np
import pytest
from conftest import FORK, NEW_INTERPRETERS, OVER_ALL, SERIAL, THREAD, Way

from gluonloader import IterableDataset, RandomSampler, SimpleDataset, get_worker_info
from gluonloader.options import Seed

LENGTH, SIZE = 16, 2
WAYS = [SERIAL, *(Way(f"fork-{n}", {"num_workers": n}) for n in (1, 2, 4)), *(NEW_INTERPRETERS if OVER_ALL else [])]


class Noise:
    """Sample i is a number of each held generator; the first two are those that most people use."""

    def __init__(self):
        self.numpy, self.python, self.legacy = np.random.default_rng(1), random.Random(1), np.random.RandomState(1)

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return [self.numpy.random(), self.python.random(), self.legacy.rand(), self.legacy.randn()]


class Transformed(Noise):
    """The generator is in a transform, which `SimpleDataset` holds."""

    def __init__(self):
        noise = Noise()
        self.dataset = SimpleDataset(range(LENGTH)).transform(noise.__getitem__)

    def __getitem__(self, index):
        return self.dataset[index]


class Tensors(Noise):
    def __init__(self):
        torch = pytest.importorskip("torch")
        self.generator = torch.Generator()
        self.draw = torch.rand

    def __getitem__(self, index):
        return self.draw(4, generator=self.generator).numpy()


class Stream:
    def __init__(self):
        self.noise = Noise()

    def __iter__(self):
        return map(self.noise.__getitem__, range(LENGTH))


class Collate:
    """The generator is in batchify_fn."""

    def __init__(self):
        self.noise = Noise()

    def __call__(self, samples):
        return np.array([self.noise[sample] for sample in samples])


class Images(Noise):
    """Albumentations' pipelines have generators that seeds of `random` and `numpy` do not reach."""

    def __init__(self):
        import albumentations

        self.augment = albumentations.Compose(
            [
                albumentations.RandomBrightnessContrast(p=1),
                albumentations.OneOf([albumentations.GaussNoise(p=1), albumentations.ISONoise(p=1)], p=1),
                albumentations.RandomCrop(8, 8, p=1),
            ]
        )
        self.image = np.random.RandomState(0).randint(50, 200, (24, 24, 3)).astype("u1")

    def __getitem__(self, index):
        return self.augment(image=self.image)["image"]


def of_albumentations(way, **arguments):
    pytest.importorskip("albumentations")
    return way.loader(Images(), SIZE, **arguments)


PIPELINES = {
    "attributes": lambda way, **arguments: way.loader(Noise(), SIZE, **arguments),
    "transform": lambda way, **arguments: way.loader(Transformed(), SIZE, **arguments),
    "torch": lambda way, **arguments: way.loader(Tensors(), SIZE, **arguments),
    "batchify_fn": lambda way, **arguments: way.loader(range(LENGTH), SIZE, batchify_fn=Collate(), **arguments),
    "iterable": lambda way, **arguments: way.loader(IterableDataset(Stream(), num_shards=1), SIZE, **arguments),
    "iterable, transformed": lambda way, **arguments: way.loader(
        IterableDataset(IterableDataset(range(LENGTH)).transform(Noise().__getitem__), num_shards=2), SIZE, **arguments
    ),
    "albumentations": of_albumentations,
}


def samples(batches):
    """The bytes of each sample; the fields of a batch that is a list are joined."""
    batches = [np.stack(batch, 1) if isinstance(batch, list) else np.asarray(batch) for batch in batches]
    return [sample.tobytes() for batch in batches for sample in batch]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_augmentation_is_distinct_and_equal_for_any_workers(way, name):
    with PIPELINES[name](SERIAL) as loader:
        expected = [samples(list(loader)) for _ in range(2)]
    assert len(set(chain(*expected))) == 2 * LENGTH
    with PIPELINES[name](way) as loader:
        assert [samples(list(loader)) for _ in range(2)] == expected


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_augmentation_is_the_same_after_a_resume(way, name):
    with PIPELINES[name](way) as loader:
        list(loader)
        iterator = iter(loader)
        next(iterator), next(iterator), next(iterator)
        state = json.dumps(loader.state_dict())
        expected = samples(list(iterator))
    with PIPELINES[name](way, seed=0) as loader:
        if name.startswith("iterable"):
            with pytest.warns(RuntimeWarning, match="resuming"):
                loader.load_state_dict(state)
        else:
            loader.load_state_dict(state)
        assert samples(list(loader)) == expected


def test_in_the_caller_the_generators_continue_as_if_no_batch_was_made():
    dataset, twin = Noise(), Noise()
    assert dataset[0] == twin[0]
    for _ in SERIAL.loader(dataset, SIZE):
        assert dataset[0] == twin[0]


def replace_generator(worker):
    get_worker_info().dataset.numpy = np.random.default_rng(worker)


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_generator_that_worker_init_fn_has_made_is_found(way):
    with way.loader(Noise(), SIZE, worker_init_fn=replace_generator) as loader:
        found = samples(list(loader))
    with SERIAL.loader(Noise(), SIZE) as loader:
        assert samples(list(loader)) == found


@pytest.mark.parametrize("way", [FORK, THREAD], ids=str)
def test_it_can_be_turned_off_and_threads_never_do_it(way):
    """With the seeds of the batches, no number would be one of those that the generator draws by itself."""
    own = np.random.default_rng(1).random(LENGTH).tolist()
    off = {} if way is THREAD else {"seed": Seed(0, reseed_generators=False)}
    with way.loader(Noise(), SIZE, **off) as loader:
        assert {number for batch in loader for number in batch[0].tolist()} <= set(own)
    with SERIAL.loader(Noise(), SIZE, seed=Seed(0, reseed_generators=False)) as loader:
        assert [number for batch in loader for number in batch[0].tolist()] == own


def test_the_generators_of_the_order_are_left_alone():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(3)
    orders = [RandomSampler(LENGTH, seed=1), torch.utils.data.RandomSampler(range(LENGTH), generator=generator)]
    expected = [list(order) for order in orders]
    generator.manual_seed(3)
    orders[0] = RandomSampler(LENGTH, seed=1)
    for order, indices in zip(orders, expected, strict=True):
        with FORK.loader(range(LENGTH), SIZE, sampler=order, batchify_fn=list) as loader:
            assert list(chain(*loader)) == indices


class Seeded(Stream):
    """Like the datasets of Hugging Face: draws its order from its own generator, which it seeds itself."""

    def set_epoch(self, epoch):
        self.order = random.Random(epoch)

    def __iter__(self):
        return iter(self.order.sample(range(LENGTH), LENGTH))


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_an_iterable_dataset_with_set_epoch_keeps_its_own_order(way):
    with way.loader(IterableDataset(Seeded(), num_shards=1), SIZE) as loader:
        assert [list(chain(*(batch.tolist() for batch in loader))) for _ in range(2)] == [
            random.Random(epoch).sample(range(LENGTH), LENGTH) for epoch in range(2)
        ]


def test_a_wrong_value_is_refused():
    with pytest.raises(ValueError, match="reseed_generators"):
        Seed(0, reseed_generators="no")
