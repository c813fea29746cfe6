"""The cases of the comparison, each with a dataset, a batch size and the number of batches in an epoch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .datasets import Maker, columns, photos, recycled, windows

Array = NDArray[Any]
Pad = Callable[[Sequence[Any]], Any]

_LOADERS: Final = (
    "gluonloader", "tensors out", "NDArrays out", "gluonloader.torch", "torch", "MXNet", "auto", "Grain", "SPDL",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A case: what is loaded, and which loaders take part.

    Args:
        name: name of the case on the command line.
        what: description of a batch.
        make: function that makes the dataset; its argument is the number of samples.
        batch_size: number of samples in a batch.
        batches: number of batches in an epoch.
        padded: whether samples differ in length; then a user's batchify function pads them.
        tensors: whether samples are tensors of torch.
        in_process: whether loaders make batches without workers, if they can.
        shuffled: whether the order is random, and changes from epoch to epoch.
        needs: names of the modules that are needed to make the dataset.
        base: name of the loader with which the other loaders are compared.
        contenders: names of the loaders that take part; other loaders are reported as not measured.
    """

    name: str
    what: str
    make: Maker
    batch_size: int
    batches: int
    padded: bool = False
    tensors: bool = False
    in_process: bool = False
    shuffled: bool = False
    needs: tuple[str, ...] = ()
    base: str = "gluonloader"
    contenders: tuple[str, ...] = _LOADERS

    def dataset(self) -> Any:
        """Makes a dataset with exactly the samples of `batches` full batches."""
        return self.make(self.batch_size * self.batches)

    def padding(self, of_arrays: Pad) -> Pad | None:
        """Returns the function that pads samples: `of_arrays`, or torch's; None if the samples have equal lengths."""
        if not self.padded:
            return None
        return pad_tensors if self.tensors else of_arrays

    def absence(self) -> str | None:
        """Returns which of the needed modules are not installed, as text; None if all modules are installed."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed" if absent else None


def fill_rows(batch: Array, samples: Sequence[Array]) -> None:
    """Writes each sample to the start of its row of the batch."""
    for row, sample in zip(batch, samples, strict=True):
        row[: len(sample)] = sample


def pad(samples: Sequence[Array]) -> Array:
    """Pads int32 samples with zeros to the length of the longest sample, as a user's batchify function does."""
    batch = np.zeros((len(samples), max(map(len, samples))), np.int32)
    fill_rows(batch, samples)
    return batch


def pad_tensors(samples: Sequence[Any]) -> Any:
    """Pads tensors with zeros to the length of the longest one."""
    return importlib.import_module("torch").nn.utils.rnn.pad_sequence(samples, batch_first=True)


def _floats(*shape: int) -> Array:
    # Random numbers, because all pages of a new array of zeros share the same memory, and so are faster to read.
    return np.random.default_rng(0).random(shape, np.float32)


def _labelled(count: int, *shape: int) -> list[tuple[Array, int]]:
    return [(array, label % 10) for label, array in enumerate(_floats(count, *shape))]


def _ragged() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1000, length, np.int32) for length in rng.integers(5, 201, 4096)]


def _dicts() -> list[dict[str, Array]]:
    return [{f"field{i}": array for i, array in enumerate(sample)} for sample in _floats(1024, 32, 16)]


def _vectors() -> list[tuple[Array, int]]:
    return _labelled(4096, 16)


def _digits() -> list[tuple[Array, int]]:
    return _labelled(12_800, 28, 28, 1)


def _images() -> list[Array]:
    return list(_floats(128, 3, 224, 224))


def _tensors(*shape: int) -> list[Any]:
    return list(importlib.import_module("torch").from_numpy(_floats(*shape)))


def _labelled_tensors(count: int, size: int) -> list[tuple[Any, Any]]:
    labels = importlib.import_module("torch").arange(count) % 10
    return list(zip(_tensors(count, size), labels, strict=True))


def _tensor_rows(count: int) -> Any:
    """Rows of two tensors, as torch's own dataset. NumPy makes them: after threads of torch, a forked process hangs."""
    torch = importlib.import_module("torch")
    arrays = _floats(count, 784), np.arange(count) % 10
    return torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays))


def _tensor_dicts() -> list[dict[str, Any]]:
    return [{"x": x, "y": y} for x, y in zip(_tensors(4096, 16), _tensors(4096, 16), strict=True)]


def _tensor_windows() -> list[Any]:
    return [window.long() for window in _tensors(2048, 1024)]


def _tensor_ragged() -> list[Any]:
    return list(map(importlib.import_module("torch").from_numpy, _ragged()))


def _tensor_cases(
    name: str, what: str, samples: Callable[[], Sequence[Any]], size: int, batches: int, *, padded: bool = False
) -> list[Case]:
    """The case with workers, and the case without. Grain's workers use up the memory if they send large tensors."""
    loaders = ("gluonloader", "gluonloader.torch", "torch", "SPDL")
    what = f"{what} as tensors"
    case = Case(
        f"tensor-{name}", what, recycled(samples), size, batches,
        padded=padded, tensors=True, needs=("torch",), contenders=loaders,
    )  # fmt: skip
    return [
        case,
        replace(
            case,
            name=f"{case.name}-serial",
            what=f"{what}, no workers",
            in_process=True,
            contenders=(*loaders, "Grain"),
        ),
    ]


_SMALL: Final = "32 of (16 float32, int label)"
_MNIST: Final = "256 of (28 x 28 x 1 float32, int label)"
_BIG: Final = "128 of 3 x 224 x 224 float32"

_COLUMNS: Final = (
    "gluonloader", "auto", "torch", "torch workers", "torch tensors", "torch batches", "MXNet", "Grain", "SPDL",
    "bare loop",
)  # fmt: skip
_PHOTOS: Final = (
    "auto", "gluonloader", "threads", "ImagePipeline", "scaled decode", "gluonloader.torch", "torch", "MXNet",
    "Gluon vision", "ImageRecordIter", "Grain", "Grain threads", "SPDL", "SPDL decoder", "bare loop",
)  # fmt: skip
_TOKENS: Final = ("gluonloader", "auto", "serial", "torch", "MXNet", "Grain", "SPDL", "bare loop")
_CROPPED: Final = "decoded, cropped at random, resized to 224 x 224, half of them mirrored, normalized; with a label"

CASES: Final = {
    case.name: case
    for case in (
        Case("tiny", "1 of 16 float32", recycled(lambda: list(_floats(4096, 16))), 1, 2500),
        Case("small", _SMALL, recycled(_vectors), 32, 2000),
        Case("mnist", _MNIST, recycled(_digits), 256, 250),
        Case("big", _BIG, recycled(_images), 128, 24),
        Case("ragged", "64 of 5 to 200 int32, padded by a user's function", recycled(_ragged), 64, 1500, padded=True),
        Case("dict32", "16 dicts of 32 arrays of 16 float32", recycled(_dicts), 16, 160),
        Case("inproc", f"{_MNIST}, no workers", recycled(_digits), 256, 250, in_process=True),
        Case(
            "columns",
            "256 rows of two arrays (28 x 28 x 1 uint8, int64 label), shuffled, no workers",
            columns(np.uint8), 256, 234, in_process=True, shuffled=True, contenders=_COLUMNS,
        ),
        Case(
            "columns-f32",
            "256 rows of two arrays (28 x 28 x 1 float32, int64 label), shuffled, no workers",
            columns(np.float32), 256, 234, in_process=True, shuffled=True, contenders=_COLUMNS,
        ),
        Case(
            "jpeg",
            f"32 of JPEGs of 500 x 375, {_CROPPED}",
            photos(500, 375, 600), 32, 76, needs=("cv2", "sklearn"), base="auto", contenders=_PHOTOS,
        ),
        Case(
            "jpeg-large",
            f"32 of JPEGs of 2000 x 1333, {_CROPPED}",
            photos(2000, 1333, 48), 32, 20, needs=("cv2", "sklearn"), base="auto", contenders=_PHOTOS,
        ),
        Case(
            "tokens",
            "64 windows of 1024 from 10^8 int32 in a file mapped into memory, shuffled",
            windows(1024), 64, 1525, shuffled=True, contenders=_TOKENS,
        ),
        Case(
            "tiny-serial", "1 of 16 float32, no workers",
            recycled(lambda: list(_floats(4096, 16))), 1, 2500, in_process=True,
        ),
        Case("small-serial", f"{_SMALL}, no workers", recycled(_vectors), 32, 2000, in_process=True),
        *_tensor_cases("pairs", "32 of (16 float32, int64 label)", lambda: _labelled_tensors(4096, 16), 32, 2000),
        *_tensor_cases("digits", "256 of (784 float32, int64 label)", lambda: _labelled_tensors(4096, 784), 256, 250),
        *_tensor_cases("dicts", "32 dicts of two of 16 float32", _tensor_dicts, 32, 2000),
        *_tensor_cases("one", "1 of (16 float32, int64 label)", lambda: _labelled_tensors(4096, 16), 1, 2500),
        Case(
            "tensor-rows-serial", "256 rows of a TensorDataset of (784 float32, int64 label), shuffled, no workers",
            _tensor_rows, 256, 200, tensors=True, in_process=True, shuffled=True, needs=("torch",),
            contenders=("gluonloader", "gluonloader.torch", "torch"),
        ),
        *_tensor_cases("windows", "64 of 1024 int64", _tensor_windows, 64, 500),
        *_tensor_cases(
            "ragged", "64 of 5 to 200 int32, padded by a user's function", _tensor_ragged, 64, 1500, padded=True
        ),
        *_tensor_cases("images", "32 of 3 x 224 x 224 float32", lambda: _tensors(64, 3, 224, 224), 32, 60),
        Case(
            "copy-limit",
            f"{_BIG}, compared with processes that only copy samples to warm shared memory",
            recycled(_images), 128, 24, contenders=("gluonloader", "plain copy"),
        ),
    )
}  # fmt: skip
