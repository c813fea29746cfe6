"""Each transform beside the one of MXNet 1.9.1 with the same name.

Cubic interpolation (2, and 9 if it chooses cubic), contrast and hue may differ by 1; everything else is equal. MXNet's
saturation is wrong: it takes the gray level from the blue channel alone.
"""

import numpy as np
import pytest
from conftest import load, load_mxnet
from pictures import picture

from gluonloader import get_rng
from gluonloader.vision import transforms

mxnet = load_mxnet()
pytestmark = [
    pytest.mark.skipif(mxnet is None or load("cv2") is None, reason="needs MXNet and OpenCV"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of MXNet's own code
]

SIZES = [(375, 500), (500, 375), (37, 53), (224, 224), (100, 1000)]


def theirs():
    return mxnet.gluon.data.vision.transforms


def check(ours, right, tolerance=0):
    right = right.asnumpy()
    assert ours.shape == right.shape
    assert ours.dtype == right.dtype
    assert np.abs(ours.astype(np.float64) - right).max() <= tolerance


def nd(image):
    return mxnet.nd.array(image, dtype=image.dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", [0, 1, 2, 3, 4])
def test_resize(size, interpolation):
    image, tolerance = picture(0, *size), int(interpolation == 2)
    for arguments in ((200, 150), False), (64, True), (64, False), ((64, 32), True):
        ours = transforms.Resize(*arguments, interpolation)(image)
        check(ours, theirs().Resize(*arguments, interpolation)(nd(image)), tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", [0, 1, 2, 3, 4, 9])
def test_center_crop(size, interpolation):
    image, tolerance = picture(0, *size), int(interpolation in (2, 9))
    for wanted in (32, (224, 120), (600, 50)):
        ours = transforms.CenterCrop(wanted, interpolation)(image)
        check(ours, theirs().CenterCrop(wanted, interpolation)(nd(image)), tolerance)


def test_to_tensor_normalize_and_cast():
    image = picture(0, 375, 500)
    for ours, right in ((image, nd(image)), (np.stack([image] * 2), nd(np.stack([image] * 2)))):
        ours, right = transforms.ToTensor()(ours), theirs().ToTensor()(right)
        check(ours, right)
        for arguments in ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), (0.5, 0.25), ((0.4, 0.5, 0.6), 0.5):
            check(transforms.Normalize(*arguments)(ours), theirs().Normalize(*arguments)(right), 1e-6)
    for dtype in ("float32", "float16", "int32"):
        check(transforms.Cast(dtype)(image), theirs().Cast(dtype)(nd(image)))


@pytest.mark.parametrize(
    ("transform", "height", "width"),
    [
        (transforms.RandomResizedCrop((224, 200)), 375, 500),
        (transforms.RandomCrop((100, 40)), 60, 80),  # wider than the image: a smaller crop is enlarged
    ],
    ids=["RandomResizedCrop", "RandomCrop"],
)
def test_random_crops_cut_and_resize_like_mxnet(transform, height, width):
    image = picture(0, height, width)
    for seed in range(10):
        np.random.seed(seed)
        box = transform.box(width, height)
        np.random.seed(seed)
        check(transform(image), mxnet.image.fixed_crop(nd(image), *box, transform.size, 1))


def test_boxes_are_distributed_like_those_of_mxnet():
    """The quantiles of left, top, width and height of 4,000 boxes of each library."""
    image = nd(picture(0, 40, 60))
    np.random.seed(0)
    transform = transforms.RandomResizedCrop(8)
    ours = np.array([transform.box(60, 40) for _ in range(4000)])
    import random

    random.seed(0)
    right = np.array(
        [mxnet.image.random_size_crop(image, (8, 8), (0.08, 1.0), (3 / 4, 4 / 3), 1)[1] for _ in range(4000)]
    )
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    assert np.abs(np.quantile(ours, quantiles, 0) - np.quantile(right, quantiles, 0)).max() <= 2


def test_flips():
    image = picture()
    check(transforms.RandomFlipLeftRight(1)(image), mxnet.nd.image.flip_left_right(nd(image)))
    check(transforms.RandomFlipTopBottom(1)(image), mxnet.nd.image.flip_top_bottom(nd(image)))


def factor_of(seed, name, amount):
    np.random.seed(seed)
    rng = get_rng()
    rng.permutation(1)
    return rng.uniform(-amount, amount) if name == "hue" else rng.uniform(max(0, 1 - amount), 1 + amount)


@pytest.mark.parametrize("name", ["brightness", "contrast", "hue"])
@pytest.mark.parametrize("amount", [0.4, 1.5])
def test_color_jitter(name, amount):
    image = picture(0, 100, 120)
    for seed in range(10):
        factor = factor_of(seed, name, amount) % (1 if name == "hue" else 100)
        np.random.seed(seed)
        ours = transforms.RandomColorJitter(**{name: amount})(image)
        right = getattr(mxnet.nd.image, f"random_{name}")(nd(image), factor, factor)
        check(ours, right, 0 if name == "brightness" else 1)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_lighting(dtype):
    image = picture(0, 100, 120).astype(dtype)
    for seed in range(10):
        np.random.seed(seed)
        weights = get_rng().normal(0, 1.5, 3)
        np.random.seed(seed)
        ours = transforms.RandomLighting(1.5)(image)
        check(
            ours,
            mxnet.nd.image.adjust_lighting(nd(image), alpha=tuple(weights.tolist())),
            0 if dtype == "uint8" else 1e-4,
        )


def test_the_saturation_of_mxnet_sees_only_blue():
    image = np.full((1, 1, 3), [200, 100, 0], np.uint8)
    right = mxnet.nd.image.random_saturation(nd(image), 0.5, 0.5).asnumpy()
    assert right.tolist() == [[[100, 50, 0]]]  # as if the gray level were 0
    from gluonloader.vision import colors

    assert np.abs(colors.saturated(image, 0.5).astype(int) - [159, 109, 59]).max() <= 1
