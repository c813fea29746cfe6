"""`ImagePipeline`: equal to the composition of the transforms, written into the batch, and the same in any executor."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load
from pictures import encode, orientation, picture, pillow, write_folder

from gluonloader import DataLoader, Rows, SimpleDataset, Subset, default_batchify, random_split
from gluonloader.declared import is_gil_free
from gluonloader.vision import ImageDataset, ImageError, ImageFolderDataset, ImagePipeline, decode
from gluonloader.vision import transforms as T  # noqa: N812

cv2 = load("cv2")
pytestmark = pytest.mark.skipif(cv2 is None or pillow is None, reason="needs OpenCV and Pillow")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Arguments of the pipeline, and the transforms that are equal to them.
CASES = {
    "center": ({}, lambda: [T.CenterCrop(32)]),
    "enlarged": ({"size": (150, 90)}, lambda: [T.CenterCrop((150, 90))]),
    "resized": ({"resize": 40, "size": (32, 30)}, lambda: [T.Resize(40, True), T.CenterCrop((32, 30))]),
    "random": ({"scale": (0.08, 1.0), "flip": 0.5}, lambda: [T.RandomResizedCrop(32), T.RandomFlipLeftRight()]),
    "ratio": (
        {"scale": (0.5, 0.6), "ratio": (2, 3), "size": (40, 20)},
        lambda: [T.RandomResizedCrop((40, 20), (0.5, 0.6), (2, 3))],
    ),
    "area": ({"scale": (0.3, 1), "interpolation": 3}, lambda: [T.RandomResizedCrop(32, (0.3, 1), interpolation=3)]),
    "any": ({"scale": (0.3, 1), "interpolation": 10}, lambda: [T.RandomResizedCrop(32, (0.3, 1), interpolation=10)]),
    "flipped": ({"resize": 40, "flip": 1}, lambda: [T.Resize(40, True), T.CenterCrop(32), T.RandomFlipLeftRight(1)]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_folder(root, count=6)
    (root / "bus" / "7.png").write_bytes(encode(picture(7), "PNG"))
    return root


def composed(transforms, dtype, layout, normalized):
    if dtype == "uint8":
        tail = [lambda image: image.transpose(2, 0, 1)] if layout == "CHW" else []
    else:
        tail = [T.ToTensor(), *([T.Normalize(MEAN, STD)] if normalized else []), T.Cast(dtype)]
        tail += [lambda image: image.transpose(1, 2, 0)] if layout == "HWC" else []
    return T.Compose([*transforms, *tail])


class ReadInBulk:
    """The same dataset, read by `__getitems__`, so that its transforms draw from the generator of the batch."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]

    def __getitems__(self, indices):
        return [self.dataset[index] for index in indices]


def check_equal(batches, expected, dtype):
    for (images, labels), (right, right_labels) in zip(batches, expected, strict=True):
        assert images.dtype == right.dtype == np.dtype(dtype)
        assert images.shape == right.shape
        assert images.flags.c_contiguous
        assert np.array_equal(labels, right_labels)
        # Stated: within 1/255 before std. Measured: equal.
        assert np.array_equal(images, right)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_batches_are_those_of_the_single_transforms(folder, case, dtype, layout):
    arguments, transforms = CASES[case]
    for flag, normalized in ((1, dtype != "uint8"), (1, False), (0, False)):
        dataset = ImageFolderDataset(folder, flag)
        statistics = {"mean": MEAN, "std": STD} if normalized else {}
        pipeline = ImagePipeline(dataset, **{"size": 32, **arguments}, **statistics, dtype=dtype, layout=layout)
        single = dataset.transform_first(composed(transforms(), dtype, layout, normalized))
        ours = list(DataLoader(pipeline, 4, shuffle=True, seed=1))
        check_equal(ours, list(DataLoader(ReadInBulk(single), 4, shuffle=True, seed=1)), dtype)


def test_oriented_images_are_equal_too(tmp_path):
    write_folder(tmp_path, exif=orientation(6))
    dataset = ImageFolderDataset(tmp_path, orient=True)
    for arguments in ({"scale": (0.1, 1)}, {"resize": 40}):
        first = T.RandomResizedCrop(32, (0.1, 1)) if "scale" in arguments else T.Compose(CASES["resized"][1]())
        size = first.size if "scale" in arguments else (32, 30)
        single = dataset.transform_first(T.Compose([first, T.ToTensor()]))
        ours = list(DataLoader(ImagePipeline(dataset, size, **arguments), 4, seed=1))
        check_equal(ours, list(DataLoader(ReadInBulk(single), 4, seed=1)), "float32")


def test_a_sample_has_an_image_and_a_label(folder):
    pipeline = ImagePipeline(ImageFolderDataset(folder), (32, 24))
    image, label = pipeline[8]
    assert image.shape == (3, 24, 32)
    assert label == 1
    assert len(pipeline) == 13
    assert np.array_equal(pipeline[-1][0], pipeline[12][0])
    assert [label for _, label in pipeline] == [0] * 7 + [1] * 6
    with pytest.raises(IndexError):
        pipeline[13]


def test_the_batch_is_not_copied(folder):
    samples = ImagePipeline(ImageFolderDataset(folder), 32).__getitems__([3, 1, 2])
    images, labels = default_batchify(samples)
    assert images is samples.columns[0]
    assert labels.tolist() == [0, 0, 0]
    assert labels.dtype == np.int64


def test_a_subset_of_a_pipeline_is_read_in_bulk(folder):
    pipeline = ImagePipeline(ImageFolderDataset(folder), 32)
    train, test = random_split(range(len(pipeline)), [0.7, 0.3], seed=0)
    assert sorted([*train, *test]) == list(range(13))
    part = Subset(pipeline, train)
    (batch,) = DataLoader(part, 13)
    assert np.array_equal(batch[0], np.stack([pipeline[index][0] for index in train]))
    assert type(part.__getitems__([0, 1])) is Rows
    with pytest.raises(TypeError, match="it is an image that is decoded already"):
        ImagePipeline(Subset(ImageFolderDataset(folder), [0]), 32)[0]


def test_bytes_in_any_dataset_are_accepted():
    images = [picture(i) for i in range(4)]
    files = SimpleDataset([(encode(image, "PNG"), np.float32([i, -i])) for i, image in enumerate(images)])
    (batch,) = DataLoader(ImagePipeline(files, (80, 60), dtype="uint8", layout="HWC"), 4)
    assert np.array_equal(batch[0], images)
    assert batch[1].tolist() == [[i, -i] for i in range(4)]


class InBulk(SimpleDataset):
    """Bytes and labels that are read in bulk."""

    reads = 0

    def __getitem__(self, index):
        raise AssertionError("read one by one")

    def __getitems__(self, indices):
        self.reads += 1
        return [super(InBulk, self).__getitem__(index) for index in indices]


def test_a_bulk_read_of_the_files_is_used():
    files = InBulk([(encode(picture(i), "PNG"), i) for i in range(4)])
    (batch,) = DataLoader(ImagePipeline(files, (80, 60), dtype="uint8", layout="HWC"), 4)
    assert np.array_equal(batch[0], [picture(i) for i in range(4)])
    assert files.reads == 1


# -- scaled decode -----------------------------------------------------------------------------------------------------


def test_a_scaled_decode_keeps_the_crop():
    gradient = np.zeros((512, 640, 3), np.uint8)
    gradient[:, :, 0], gradient[:, :, 1] = np.arange(640) // 3, np.arange(512)[:, None] // 3
    files = SimpleDataset([(encode(gradient, quality=98, subsampling=0), 0)] * 8)
    for arguments in ({"scale": (0.2, 1), "flip": 0.5}, {"resize": 40}, {}):
        kind = {"size": 32, "dtype": "uint8", **arguments}
        (plain,) = DataLoader(ImagePipeline(files, **kind), 8, seed=4)
        (scaled,) = DataLoader(ImagePipeline(files, scaled_decode=True, **kind), 8, seed=4)
        assert np.abs(plain[0].astype(int) - scaled[0]).max() <= 4
        assert np.array_equal(plain[0], scaled[0]) is (not arguments)  # a crop without resize is never scaled


def test_a_scaled_decode_works_for_crops_at_all_edges():
    files = SimpleDataset([(encode(picture(0, 61, 83)), 0)] * 64)
    for size in (1, 3, 7, 15):
        pipeline = ImagePipeline(files, size, scale=(0.01, 1), scaled_decode=True, dtype="uint8")
        for images, _ in DataLoader(pipeline, 16, seed=2):
            assert images.any((1, 2, 3)).all()


# -- executors ---------------------------------------------------------------------------------------------------------

AUGMENTING = {"scale": (0.08, 1), "flip": 0.5, "mean": MEAN, "std": STD, "interpolation": 10}


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_batches_depend_neither_on_the_workers_nor_on_a_resume(folder, way):
    pipeline = ImagePipeline(ImageFolderDataset(folder), 32, **AUGMENTING)
    with SERIAL.loader(pipeline, 4, shuffle=True) as loader, way.loader(pipeline, 4, shuffle=True) as other:
        expected, batches = [list(loader) for _ in range(2)], [[], []]
        for epoch in batches:
            for images, labels in other:
                epoch.append((images.copy(), labels.copy()))
                if len(batches[0]) == 1:
                    state = other.state_dict()
    for ours, right in zip(batches, expected, strict=True):
        check_equal(ours, right, "float32")
    with SERIAL.loader(pipeline, 4, shuffle=True) as loader:
        loader.load_state_dict(state)
        check_equal(loader, expected[0][1:], "float32")


def test_auto_chooses_threads(folder):
    pipeline = ImagePipeline(ImageFolderDataset(folder), 32, **AUGMENTING)
    assert is_gil_free(pipeline)
    assert not is_gil_free(ImagePipeline(SimpleDataset([(b"", 0)]).transform(lambda data, label: (data, label)), 32))
    with DataLoader(pipeline, 4, num_workers=2, executor="auto") as loader:
        list(loader)
        assert loader.stats().executor in ("serial", "thread")  # serial if one core is enough


def test_a_pipeline_can_be_pickled(folder):
    pipeline = ImagePipeline(ImageFolderDataset(folder), 32, resize=40, mean=MEAN, std=STD)
    assert np.array_equal(pickle.loads(pickle.dumps(pipeline))[3][0], pipeline[3][0])


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"size": 0}, r"^size=0: must be an int >= 1"),
        ({"resize": 0}, r"^resize=0: must be an int >= 1"),
        ({"resize": (40, 60)}, r"^resize=\(40, 60\): must be an int >= 1"),
        ({"ratio": (1, 2)}, r"^ratio=\(1, 2\): is for random crops; pass scale too, or remove ratio"),
        ({"flip": "0.5"}, r"^flip='0.5': must be a probability"),
        ({"std": (1, 2)}, r"^std=\[1.0, 2.0\]: must be a number, or a list of 3 numbers, for images with 3 channels"),
        ({"resize": 40, "scale": (0.1, 1)}, r"^resize=40: cannot be used together with scale; remove resize or scale"),
        ({"scale": (0, 1)}, r"^scale=\(0, 1\): must be a pair"),
        ({"flip": 2}, r"^flip=2: must be a probability from 0 to 1; 0.5 mirrors half of the images"),
        ({"flip": True}, r"^flip=True: must be a probability"),
        ({"dtype": "float64"}, r"^dtype=dtype\('float64'\): must be one of uint8, float16, float32"),
        ({"dtype": "uint8", "mean": 0.5}, r"^dtype='uint8': must be a float dtype if you pass mean or std"),
        ({"layout": "NCHW"}, r'^layout=\'NCHW\': must be "CHW" or "HWC"'),
        ({"std": 0}, r"^std=0: must be a number > 0"),
        ({"mean": (1, 2)}, r"^mean=.*: must be a number, or a list of 3 numbers"),
        ({"interpolation": 7}, r"^interpolation=7: must be one of MXNet's numbers"),
    ],
)
def test_a_wrong_argument_is_named(folder, arguments, fault):
    with pytest.raises(ValueError, match=fault):
        ImagePipeline(ImageFolderDataset(folder), **{"size": 32, **arguments})


def test_a_dataset_that_already_changes_its_images_is_refused(folder):
    with pytest.raises(ValueError, match="it has a transform; pass a dataset without a transform"):
        ImagePipeline(ImageFolderDataset(folder, transform=lambda image, label: image), 32)
    with pytest.raises(ValueError, match="it has min_size=30; remove min_size, and pass scaled_decode=True to"):
        ImagePipeline(ImageFolderDataset(folder, min_size=30), 32)


class Relabelled(ImageFolderDataset):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image, label + 100


class Renumbered(SimpleDataset):
    def __getitem__(self, index):
        data, label = super().__getitem__(index)
        return data, label + 100


def test_a_subclass_that_changes_the_samples_is_refused(folder):
    with pytest.raises(ValueError, match=r"does not call Relabelled.__getitem__; override .* \(encoded\)"):
        ImagePipeline(Relabelled(folder), 32)
    assert ImagePipeline(ImageDataset(Renumbered([(encode(picture()), 1)])), 32)[0][1] == 101


@pytest.mark.parametrize(
    ("dataset", "fault"),
    [
        ("photos", r"^{}='photos': it is a path; pass a dataset, for example ImageFolderDataset\(path\)"),
        (Path("photos"), r"^{}=PosixPath\('photos'\): it is a path"),
        (b"data", r"^{}=b'data': it is a single image file; pass a list of"),
        (None, r"^{}=None: it cannot be indexed; pass a list, an array or a dataset"),
        ((x for x in []), r"^{}=<generator .*: it cannot be indexed"),
    ],
)
def test_what_is_no_dataset_is_refused(dataset, fault):
    with pytest.raises(ValueError, match=fault.format("dataset")):
        ImagePipeline(dataset, 32)
    with pytest.raises(ValueError, match=fault.format("encoded")):
        ImageDataset(dataset)


@pytest.mark.parametrize("sample", [b"data", (b"data", 1, 2), {"image": b"", "label": 0}, 5, None])
def test_a_sample_that_is_no_pair_is_named(sample):
    for dataset in (ImageDataset([(b"", 0), sample]), ImagePipeline([(b"", 0), sample], 32)):
        with pytest.raises(TypeError, match=r"^sample 1 must be \(bytes of an image file, label\), but it is "):
            dataset[1]


def test_a_slice_is_refused(folder):
    for dataset in (ImageFolderDataset(folder), ImagePipeline(ImageFolderDataset(folder), 32)):
        with pytest.raises(TypeError, match=r"^index=slice\(0, 2, None\): must be an int; .* use Subset"):
            dataset[0:2]


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_damaged_file_is_named(tmp_path, way):
    write_folder(tmp_path)
    (tmp_path / "car" / "1.jpg").write_bytes(encode(picture())[:500])
    with way.loader(ImagePipeline(ImageFolderDataset(tmp_path), 32), 4) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ImageError, match=r"car/1.jpg: the image file is truncated") as error:
            next(iterator)
    assert "gluonloader: sample 5 of a bulk read" in error.value.__notes__


def test_the_limit_on_pixels_is_that_of_the_dataset():
    files = ImageDataset(SimpleDataset([(encode(picture()), 0)]), max_pixels=4799)
    with pytest.raises(ImageError, match="more than max_pixels=4,799"):
        ImagePipeline(files, 32)[0]
    assert decode(encode(picture()), max_pixels=4800).shape == (60, 80, 3)
