"""Images as NumPy arrays: `decode`, datasets, transforms and `ImagePipeline`. Needs `gluonloader[vision]`.

`import gluonloader` does not import this package: write `from gluonloader import vision`. This package
imports OpenCV, simplejpeg and Pillow only when it first needs them.
"""

from ..errors import ImageError
from . import transforms
from .decoding import decode
from .encoded import ImageDataset
from .files import ImageFolderDataset, ImageListDataset
from .header import MAX_PIXELS
from .originals import CIFAR10, CIFAR100, MNIST, FashionMNIST
from .pipeline import ImagePipeline
from .record_images import ImageRecordDataset

__all__ = [
    "CIFAR10", "CIFAR100", "MAX_PIXELS", "MNIST", "FashionMNIST", "ImageDataset", "ImageError", "ImageFolderDataset",
    "ImageListDataset", "ImagePipeline", "ImageRecordDataset", "decode", "transforms",
]  # fmt: skip
