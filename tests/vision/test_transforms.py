"""Transforms: what random ones draw, what they do with it, that they repeat, and what they declare and refuse."""

import pickle

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, THREAD, Way, load
from pictures import picture

from gluonloader import DataLoader, SimpleDataset, get_rng
from gluonloader.declared import is_gil_free
from gluonloader.vision import transforms

cv2 = load("cv2")
pytestmark = pytest.mark.skipif(cv2 is None, reason="needs OpenCV")


def numbered(height, width):
    """An image whose pixels contain their row and column."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, rows * 0], 2).astype(np.uint8)


NUMBERED = numbered(256, 256)


def box_of(part):
    """Where a part of a numbered image lies: left, top, width, height; checks that it is a subarray."""
    top, left, _ = part[0, 0].tolist()
    height, width = part.shape[:2]
    assert np.array_equal(part, NUMBERED[top : top + height, left : left + width])
    return left, top, width, height


def draw(transform, image, count=400):
    """What a transform returns for `count` batches."""
    np.random.seed(0)
    return [transform(image) for _ in range(count)]


def test_added_pixels_have_the_value_that_was_passed():
    image = np.full((4, 4, 3), 9, np.uint8)
    for value in (0, 255, np.uint8(7), 7.0):
        padded = transforms.RandomCrop(8, pad=2, pad_value=value)(image)
        assert sorted(set(padded.ravel().tolist())) == sorted({int(value), 9})
    assert transforms.RandomCrop(8, pad=2, pad_value=0.5)(np.float32(image)).min() == 0.5
    for value in (256, -1, 0.5):
        with pytest.raises(ValueError, match=f"pad_value={value}: a pixel of uint8 cannot have it; pass an int"):
            transforms.RandomCrop(8, pad=2, pad_value=value)(image)
    for value in ("0", (0, 255), (1, 2, 3), float("nan"), None):
        with pytest.raises(ValueError, match="pad_value=.*must be a number, the same for all channels"):
            transforms.RandomCrop(8, pad=2, pad_value=value)


def test_the_gray_level_of_an_image_with_an_alpha_channel_is_that_of_its_colours():
    image = picture()
    with_alpha = np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])
    for transform in (transforms.RandomContrast(0.5), transforms.RandomColorJitter(contrast=0.5)):
        changed = [draw(transform, pixels, 5) for pixels in (image, with_alpha)]
        assert all(np.array_equal(one, other[:, :, :3]) for one, other in zip(*changed, strict=True))


# -- deterministic -----------------------------------------------------------------------------------------------------


def test_to_tensor_moves_the_channels_and_divides():
    image = picture()
    expected = (image.transpose(2, 0, 1) / 255).astype(np.float32)
    assert np.abs(transforms.ToTensor()(image) - expected).max() < 1e-7
    assert transforms.ToTensor()(image).flags.c_contiguous
    assert transforms.ToTensor()(np.stack([image] * 2)).shape == (2, 3, 60, 80)
    with pytest.raises(ValueError, match=r"has shape \(60, 80\); pass an array of shape \(H, W, C\)"):
        transforms.ToTensor()(image[:, :, 0])


def test_normalize_works_by_channel_and_on_batches():
    image = transforms.ToTensor()(picture())
    normal = transforms.Normalize((0.1, 0.2, 0.3), (0.5, 0.4, 0.3))(image)
    assert np.allclose(normal[1], (image[1] - 0.2) / 0.4, atol=1e-6)
    assert normal.dtype == np.float32
    assert np.array_equal(transforms.Normalize((0.1, 0.2, 0.3), (0.5, 0.4, 0.3))(image[None])[0], normal)
    assert np.allclose(transforms.Normalize(0.5, 2)(image), (image - 0.5) / 2, atol=1e-6)
    with pytest.raises(ValueError, match=r"the image is uint8 .*; pass a float array"):
        transforms.Normalize(0.5)(picture())


def test_a_compose_applies_in_order_and_a_cast_casts():
    assert transforms.Compose([lambda x: x + [1], lambda x: x + [2]])([0]) == [0, 1, 2]
    assert transforms.Cast("float16")(picture()).dtype == np.float16
    assert transforms.Cast()(picture()).dtype == np.float32


def test_transforms_may_come_from_a_generator():
    for make in (transforms.Compose, lambda parts: transforms.RandomApply(parts, 1)):
        assert make(transforms.Cast(name) for name in ("float32", "float16"))(picture()).dtype == np.float16
        assert make(map(transforms.Cast, ["float32"]))(picture()).dtype == np.float32


def test_a_center_crop_is_a_subarray():
    assert box_of(transforms.CenterCrop((20, 10))(numbered(60, 81))) == (30, 25, 20, 10)
    assert box_of(transforms.CenterCrop(60)(numbered(60, 60))) == (0, 0, 60, 60)


def test_a_small_image_is_enlarged():
    image = picture()
    for crop in (transforms.CenterCrop((160, 100)), transforms.RandomCrop((160, 100))):
        assert crop(image).shape == (100, 160, 3)
    assert np.array_equal(transforms.CenterCrop((160, 120))(image), cv2.resize(image, (160, 120)))


def test_resize_keeps_the_ratio_on_request():
    image = picture(0, 60, 80)
    assert transforms.Resize(30)(image).shape == (30, 30, 3)
    assert transforms.Resize((20, 10))(image).shape == (10, 20, 3)
    assert transforms.Resize(30, True)(image).shape == (30, 40, 3)
    assert transforms.Resize(30, True)(image.transpose(1, 0, 2)).shape == (40, 30, 3)
    assert transforms.Resize((20, 10), True)(image).shape == (10, 20, 3)
    assert transforms.Resize(30)(np.stack([image] * 2)).shape == (2, 30, 30, 3)
    assert np.array_equal(transforms.Resize(30, interpolation=3)(image), cv2.resize(image, (30, 30), interpolation=3))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_axis_of_channels_stays(channels):
    image = picture(0, 60, 80, channels)
    for transform in (
        transforms.Resize(30), transforms.CenterCrop(90), transforms.RandomResizedCrop(20),
        transforms.RandomFlipLeftRight(1), transforms.RandomFlipTopBottom(1), transforms.RandomCrop(70, 5),
        transforms.RandomColorJitter(0.5, 0.5, 0.5, 0.5), transforms.RandomLighting(0.5),
    ):  # fmt: skip
        assert transform(image).shape[2:] == (channels,)
        assert transform(image).dtype == np.uint8


# -- random ------------------------------------------------------------------------------------------------------------


def test_flips_mirror_half_of_the_images():
    image = picture()
    for transform, mirrored in (
        (transforms.RandomFlipLeftRight(), image[:, ::-1]),
        (transforms.RandomFlipTopBottom(), image[::-1]),
    ):
        flips = [np.array_equal(result, mirrored) for result in draw(transform, image)]
        same = [np.array_equal(result, image) for result in draw(transform, image)]
        assert [not flip for flip in flips] == same
        assert 150 < sum(flips) < 250
    assert np.array_equal(transforms.RandomFlipLeftRight(1)(image), image[:, ::-1])
    assert transforms.RandomFlipLeftRight(0)(image) is image


def test_a_random_crop_is_a_subarray_anywhere():
    boxes = [box_of(part) for part in draw(transforms.RandomCrop((50, 40)), numbered(60, 80), 2000)]
    assert {box[2:] for box in boxes} == {(50, 40)}
    assert {box[0] for box in boxes} == set(range(31))
    assert {box[1] for box in boxes} == set(range(21))
    assert abs(np.mean([box[0] for box in boxes]) - 15) < 1


def test_a_random_crop_pads():
    image = np.ones((10, 20, 3), np.uint8)
    crop = transforms.RandomCrop((26, 13), (1, 2, 4, 2), 9)(image)
    assert np.array_equal(crop[1:-2, 4:-2], image)
    assert (np.delete(crop, np.s_[4:-2], 1) == 9).all()
    assert {result.shape for result in draw(transforms.RandomCrop(10, np.int64(4)), image, 20)} == {(10, 10, 3)}


def test_a_random_resized_crop_is_a_resized_subarray():
    image = picture()
    transform = transforms.RandomResizedCrop((32, 24))
    for seed in range(20):
        np.random.seed(seed)
        left, top, width, height = transform.box(80, 60)
        np.random.seed(seed)
        part = image[top : top + height, left : left + width]
        assert np.array_equal(transform(image), cv2.resize(part, (32, 24)))


def test_areas_and_ratios_of_random_resized_crops_are_in_their_range():
    np.random.seed(0)
    transform = transforms.RandomResizedCrop(224, (0.1, 0.6), (0.5, 2))
    boxes = np.array([transform.box(500, 400) for _ in range(3000)])
    area = boxes[:, 2] * boxes[:, 3] / (500 * 400)
    ratio = boxes[:, 2] / boxes[:, 3]
    assert (area > 0.098).all()
    assert (area < 0.602).all()
    assert abs(area.mean() - 0.35) < 0.02
    assert (ratio > 0.49).all()
    assert (ratio < 2.02).all()
    assert abs(np.log(ratio).mean()) < 0.05
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 0] + boxes[:, 2] <= 500).all()
    assert (boxes[:, 1] + boxes[:, 3] <= 400).all()


def test_a_crop_that_never_fits_becomes_the_centre():
    transform = transforms.RandomResizedCrop(30, (1, 1), (8, 9))
    assert transform.box(60, 60) == (15, 15, 30, 30)


def test_random_apply_applies_with_its_probability():
    applied = draw(transforms.RandomApply([lambda x: x + 1, lambda x: x * 2], 0.3), 1, 1000)
    assert set(applied) == {1, 4}
    assert 240 < applied.count(4) < 360
    assert transforms.RandomApply(lambda x: x + 1, 1)(1) == 2
    assert set(draw(transforms.RandomApply(lambda x: x + 1, 0), 1)) == {1}


def test_a_random_interpolation_is_one_of_five():
    image = picture()
    results = [cv2.resize(image, (30, 30), interpolation=number) for number in range(5)]
    found = {
        [np.array_equal(result, right) for right in results].index(True)
        for result in draw(transforms.Resize(30, interpolation=10), image, 100)
    }
    assert found == set(range(5))


GRAY = np.array([0.299, 0.587, 0.114])


def jittered(name, image, factor):
    """The formulas, in float64."""
    pixels = image.astype(float)
    gray = (pixels * GRAY).sum(2, keepdims=True)
    other = {"brightness": 0, "contrast": gray.mean(), "saturation": gray}[name]
    return np.clip(pixels * factor + (1 - factor) * other, 0, 255)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_the_color_jitter_follows_its_formula(name):
    image = picture()
    transform = transforms.RandomColorJitter(**{name: 0.7})
    for seed in range(10):
        np.random.seed(seed)
        rng = get_rng()
        rng.permutation(1)
        factor = rng.uniform(0.3, 1.7)
        np.random.seed(seed)
        result = transform(image)
        assert np.abs(result - jittered(name, image, factor)).max() <= 1.01
        np.random.seed(seed)
        floats = transform(image.astype(np.float32))
        assert np.abs(np.clip(floats, 0, 255) - jittered(name, image, factor)).max() <= 0.01


def test_a_full_turn_of_the_hue_changes_nothing():
    from gluonloader.vision import colors

    image = picture()
    assert np.abs(colors.rotated_hue(image, 1.0).astype(int) - image).max() <= 1
    primary = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)
    assert np.abs(colors.rotated_hue(primary, 1 / 3).astype(int) - primary[:, [1, 2, 0]]).max() <= 1


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_each_jitter_is_a_transform_of_its_own(name):
    single = getattr(transforms, f"Random{name.capitalize()}")(0.3)
    for ours, right in zip(
        draw(single, picture(), 5), draw(transforms.RandomColorJitter(**{name: 0.3}), picture(), 5), strict=True
    ):
        assert np.array_equal(ours, right)
    assert is_gil_free(single)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_images_of_16_bits_are_changed_like_those_of_8(name):
    """The values are clipped, and do not wrap around."""
    image = picture(0, 20, 20)
    transform = transforms.RandomColorJitter(**{name: 0.9})
    for small, large in zip(draw(transform, image, 20), draw(transform, image.astype(np.uint16) * 257, 20)):
        assert large.dtype == np.uint16
        assert np.abs(large / 257 - small).max() < 1.1


def test_lighting_adds_one_random_colour_to_the_whole_image():
    """Nothing wraps around: values are clipped, except those of floats."""
    image, transform = picture(0, 20, 20), transforms.RandomLighting(2.0)
    black = np.zeros((2, 2, 3), np.float32)
    small, floats, large = (
        draw(transform, array, 20) for array in (image, image.astype(np.float32), image.astype(np.uint16) * 257)
    )
    for added, ours, right, wide in zip(draw(transform, black, 20), small, floats, large, strict=True):
        assert (added == added[0, 0]).all()
        assert np.allclose(right, image + added[0, 0], atol=1e-4)
        assert np.abs(ours - np.clip(right, 0, 255)).max() < 1.01
        assert np.abs(wide / 257 - np.clip(right, 0, 255)).max() < 0.01
    assert transforms.RandomLighting(0)(image) is image
    assert np.array_equal(transform(image[..., :1]), image[..., :1])
    assert repr(transform) == "RandomLighting(alpha=2.0)"
    assert is_gil_free(transform)


def test_all_jitters_are_applied_in_random_order():
    image = picture()
    results = draw(transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1), image, 30)
    assert len({result.tobytes() for result in results}) == 30
    assert transforms.RandomColorJitter()(image) is image


# -- in a loader -------------------------------------------------------------------------------------------------------

AUGMENT = transforms.Compose(
    [
        transforms.RandomApply(transforms.RandomCrop(50, 3)), transforms.RandomResizedCrop((32, 24)),
        transforms.RandomFlipLeftRight(), transforms.RandomFlipTopBottom(),
        transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1), transforms.ToTensor(), transforms.Normalize(0.5, 0.2),
    ]
)  # fmt: skip
IMAGES = SimpleDataset([picture(i) for i in range(20)]).transform(AUGMENT)
FOUR = Way("fork-4", {"num_workers": 4, "start_method": "fork"})
WAYS = [THREAD, FORK, FOUR, FORKSERVER, Way("fork-1", {"num_workers": 1, "start_method": "fork"})]


def batches_of(way, **arguments):
    with way.loader(IMAGES, 3, shuffle=True, **arguments) as loader:
        return [batch.copy() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_augmented_images_depend_neither_on_the_workers_nor_on_a_resume(way):
    expected, batches = batches_of(SERIAL), []
    with way.loader(IMAGES, 3, shuffle=True) as loader:
        for _ in range(2):
            for batch in loader:
                batches.append(batch.copy())
                if len(batches) == 3:
                    state = loader.state_dict()
    for batch, right in zip(batches, expected, strict=True):
        assert np.array_equal(batch, right)
    with SERIAL.loader(IMAGES, 3, shuffle=True) as loader:
        loader.load_state_dict(state)
        for batch, right in zip(loader, expected[3:7], strict=True):
            assert np.array_equal(batch, right)


def test_epochs_and_seeds_differ():
    first, second = np.concatenate(batches_of(SERIAL)[:7]), np.concatenate(batches_of(SERIAL)[7:])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.concatenate(batches_of(SERIAL, seed=1)[:7]))


def test_all_transforms_declare_that_they_release_the_gil():
    assert is_gil_free(AUGMENT)
    assert is_gil_free(transforms.Compose([transforms.Resize(3), transforms.CenterCrop(2), transforms.Cast()]))
    assert not is_gil_free(transforms.Compose([transforms.Resize(3), lambda image: image]))
    assert not is_gil_free(transforms.RandomApply(lambda image: image))
    with DataLoader(IMAGES, 3, num_workers=2, executor="auto") as loader:
        list(loader)


def test_transforms_can_be_pickled():
    assert np.array_equal(
        *(draw(transform, picture(), 3)[2] for transform in (AUGMENT, pickle.loads(pickle.dumps(AUGMENT))))
    )


def test_repr_shows_the_arguments():
    compose = transforms.Compose([transforms.CenterCrop(3), transforms.ToTensor(), transforms.RandomHue(0.1), picture])
    expected = "Compose(CenterCrop(size=(3, 3), interpolation=1), ToTensor(), RandomHue(hue=0.1), picture)"
    assert repr(compose) == expected
    expected = "RandomColorJitter(brightness=0.4, contrast=0, saturation=0, hue=0)"
    assert repr(transforms.RandomColorJitter(0.4)) == expected


# -- errors ------------------------------------------------------------------------------------------------------------


GEOMETRIC = [
    transforms.Resize(20), transforms.CenterCrop(20), transforms.RandomCrop(20, 4), transforms.RandomResizedCrop(20),
    transforms.RandomFlipLeftRight(0), transforms.RandomFlipTopBottom(1), transforms.RandomColorJitter(0.1),
    transforms.RandomLighting(0.1),
]  # fmt: skip
POINTWISE = [transforms.Cast(), transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]
TENSOR = transforms.ToTensor()(picture())
NORMALIZE = transforms.Normalize((0.4, 0.4, 0.4), (0.2, 0.2, 0.2))


@pytest.mark.parametrize("transform", GEOMETRIC + POINTWISE, ids=repr)
def test_an_image_of_pillow_is_refused(transform):
    pillow = load("PIL.Image") or pytest.skip("needs Pillow")
    with pytest.raises(ValueError, match=r"the image is of type Image; pass a NumPy array .* np.asarray converts"):
        transform(pillow.fromarray(picture()))


@pytest.mark.parametrize("transform", GEOMETRIC, ids=repr)
def test_images_that_would_be_changed_wrongly_are_refused(transform):
    for dtype in ("int64", "int32", "float16", "bool", ">f4"):
        with pytest.raises(ValueError, match=rf"the image has dtype {dtype}; pass uint8, .*Cast"):
            transform(picture().astype(dtype))
    with pytest.raises(ValueError, match=r"shape \(0, 5, 3\), so it has no pixels"):
        transform(np.zeros((0, 5, 3), np.uint8))
    for image in (TENSOR, TENSOR[:1]):
        with pytest.raises(ValueError, match=r"shape \([13], 60, 80\), with the channels first; .* before ToTensor"):
            transform(image)


@pytest.mark.parametrize("shape", [(1, 300, 3), (3, 300, 1), (1, 1, 3), (3, 9, 4), (60, 80, 5)])
def test_images_with_few_rows_or_many_channels_are_accepted(shape):
    image = np.zeros(shape, np.uint8)
    for interpolation in range(5):
        assert transforms.Resize(20, interpolation=interpolation)(image).shape == (20, 20, shape[2])
    for transform in (transforms.RandomFlipLeftRight(1), transforms.RandomColorJitter(0.1, 0.1, 0.1, 0.1)):
        assert transform(image).shape == shape


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: transforms.Resize(0), r"^size=0: must be an int >= 1, or a pair \(width, height\)"),
        (lambda: transforms.Resize((1, 2, 3)), r"^size=\(1, 2, 3\): must be an int"),
        (lambda: transforms.CenterCrop(2.5), r"^size=2.5: must be an int"),
        (lambda: transforms.Resize(3, interpolation=5), r"^interpolation=5: must be one of MXNet's numbers: 0 nearest"),
        (lambda: transforms.RandomResizedCrop(3, 0.5), r"^scale=0.5: must be a pair of numbers"),
        (lambda: transforms.RandomResizedCrop(3, (0.5, 0.1)), r"^scale=\(0.5, 0.1\): must be"),
        (lambda: transforms.RandomResizedCrop(3, ratio=(0, 1)), r"^ratio=\(0, 1\): must be"),
        (lambda: transforms.RandomCrop(3, -1), r"^pad=-1: must be an int >= 0"),
        (lambda: transforms.RandomCrop(3, (1, 2)), r"^pad=\(1, 2\): must be an int >= 0, or four such ints"),
        (lambda: transforms.RandomFlipLeftRight(2), r"^p=2: must be a number from 0 to 1"),
        (lambda: transforms.RandomFlipTopBottom(-1), r"^p=-1: must be"),
        (lambda: transforms.RandomApply([], 3), r"^p=3: must be"),
        (lambda: transforms.RandomColorJitter(hue=-1), r"^hue=-1: must be a number >= 0"),
        (lambda: transforms.RandomLighting(-1), r"^alpha=-1: must be a number >= 0"),
        (lambda: transforms.RandomBrightness(float("inf")), r"^brightness=inf: must be a number >= 0"),
        (lambda: transforms.RandomLighting(float("inf")), r"^alpha=inf: must be a number >= 0"),
        (lambda: transforms.RandomResizedCrop(3, ratio=(1, float("inf"))), r"^ratio=\(1, inf\): must be .* < infinity"),
        (
            lambda: transforms.Cast("flaot32"),
            r"^dtype='flaot32': must be a dtype of NumPy, e.g. 'float32'; did you mean 'float32'\?",
        ),
        (lambda: transforms.Normalize(0, 0), r"^std=0: must be a number > 0"),
        (lambda: transforms.Normalize("a"), r"^mean='a': must be a number, or a list"),
        (lambda: transforms.Normalize([]), r"^mean=\[\]: must be a number, or a list"),
        (lambda: transforms.Normalize([[0.5], [1, 2]]), r"^mean=\[\[0.5\], \[1, 2\]\]: must be a number, or a list"),
        (lambda: transforms.Normalize(0, float("inf")), r"^std=inf: must be a number > 0"),
        (lambda: transforms.Normalize((1, 2), (1, 2, 3)), r"^std=\(1, 2, 3\): has 3 numbers, but mean has 2"),
        (lambda: transforms.Compose([3]), r"^transforms=\[3\]: must be a list of functions"),
        (lambda: transforms.Compose(transforms.Cast()), r"^transforms=Cast\(.*\): must be a list of functions"),
        (lambda: transforms.Compose(None), r"^transforms=None: must be a list of functions"),
        (lambda: transforms.RandomApply(3), r"^transforms=3: must be a list of functions"),
        (lambda: transforms.Resize(3, interpolation=1.0), r"^interpolation=1.0: must be one of"),
        (lambda: transforms.RandomResizedCrop(3, ("a", "b")), r"^scale=\('a', 'b'\): must be a pair of numbers"),
        (lambda: transforms.RandomFlipLeftRight("0.5"), r"^p='0.5': must be a number from 0 to 1"),
        (lambda: transforms.RandomColorJitter("0.5"), r"^brightness='0.5': must be a number >= 0"),
        (lambda: transforms.RandomBrightness((0.5, 1)), r"^brightness=\(0.5, 1\): must be a number >= 0"),
        (lambda: transforms.RandomCrop(3, 2.5), r"^pad=2.5: must be an int >= 0"),
        (
            lambda: NORMALIZE(TENSOR[:1]),
            r"^mean=\[0.4, 0.4, 0.4\]: must be a single number for this image of .* \(1, 60",
        ),
        (lambda: NORMALIZE(picture().astype("f4")), r"a list of 60 numbers, for this image of shape \(60, 80, 3\)"),
        (lambda: transforms.Normalize(0, (1, 2))(TENSOR), r"^std=\[1.0, 2.0\]: must be a number, or a list of 3"),
        (lambda: transforms.Resize(3)(np.zeros((4, 4))), r"the image has shape \(4, 4\); pass a NumPy array of shape"),
        (lambda: transforms.CenterCrop(3)([1]), r"the image is of type list; pass a NumPy array"),
        (lambda: transforms.RandomFlipLeftRight(1)(np.zeros(3)), r"the image has shape \(3,\)"),
    ],
)
def test_a_wrong_argument_is_named(make, fault):
    with pytest.raises(ValueError, match=fault):
        make()
