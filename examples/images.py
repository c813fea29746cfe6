"""Trains a small convolutional network on images: with torch on a folder of JPEGs, or with Gluon on RecordIO files.

    pip install ".[examples,vision,torch]"
    python examples/images.py

    pip install ".[examples,vision,mxnet]"
    python examples/images.py --gluon

The images are random crops of the two sample pictures of scikit-learn, a Chinese temple and a flower. The network
learns from crops of the left half of each picture, and is tested with crops of the right half.
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np
from sklearn.datasets import load_sample_images
from tqdm import tqdm

from gluonloader import DataLoader
from gluonloader.records import IndexedRecordIO, IRHeader, pack
from gluonloader.vision import ImageFolderDataset, ImagePipeline, ImageRecordDataset

EPOCHS, RATE, SIZE = 8, 0.03, 64
NORMAL = {"mean": (0.45, 0.45, 0.45), "std": (0.25, 0.25, 0.25)}


def write_folder(root, count, first_column, seed):
    """Writes `count` random crops of each picture to `root/CLASS/NUMBER.jpg`; the crops lie right of `first_column`."""
    rng = np.random.default_rng(seed)
    for name, picture in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (root / name).mkdir(parents=True)
        half = picture[:, first_column : first_column + 320, ::-1]  # OpenCV expects the channels blue, green and red
        for number in range(count):
            top, left = rng.integers(0, half.shape[0] - 160), rng.integers(0, half.shape[1] - 160)
            cv2.imwrite(str(root / name / f"{number}.jpg"), half[top : top + 160, left : left + 160])


def write_records(folder, path):
    """Packs the images of a folder into a RecordIO file, as `python -m gluonloader records make` does."""
    with IndexedRecordIO(path, "w") as records:
        for key, (image, label) in enumerate(ImageFolderDataset(folder).items):
            records.write_idx(key, pack(IRHeader(0, label, key, 0), Path(image).read_bytes()))


def loaders(train, test, **options):
    """Returns a loader of random crops for training, and a loader of whole images for the test."""
    training = ImagePipeline(train, SIZE, scale=(0.4, 1.0), flip=0.5, **NORMAL)
    testing = ImagePipeline(test, SIZE, resize=SIZE, **NORMAL)
    return (
        DataLoader(training, batch_size=32, shuffle=True, last_batch="discard", num_workers=2, seed=0, **options),
        DataLoader(testing, batch_size=40, **options),
    )


def train_torch(train, test):
    """Trains with torch, and returns the share of the test images that the network classifies correctly."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the workers use the other cores
    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9)
    training, testing = loaders(train, test, output="torch")
    with training, testing:
        for _ in tqdm(range(EPOCHS), unit="epoch"):
            for images, labels in training:
                loss = nn.functional.cross_entropy(network(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            hits = [network(images).argmax(dim=1) == labels for images, labels in testing]
    return torch.cat(hits).float().mean().item()


def train_gluon(train, test):
    """Trains with Gluon, and returns the share of the test images that the network classifies correctly."""
    from gluonloader.mxnet import patch_numpy

    patch_numpy()  # with NumPy 1.24 or newer, this must run before MXNet is imported
    import mxnet as mx
    from mxnet import autograd, gluon

    mx.random.seed(0)
    network = gluon.nn.Sequential()
    network.add(
        gluon.nn.Conv2D(16, 5, 2, activation="relu"), gluon.nn.MaxPool2D(2),
        gluon.nn.Conv2D(32, 3, activation="relu"), gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(2),
    )  # fmt: skip
    network.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": RATE, "momentum": 0.9})
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    training, testing = loaders(train, test, output="mxnet")
    with training, testing:
        for _ in tqdm(range(EPOCHS), unit="epoch"):
            for images, labels in training:
                with autograd.record():
                    loss = cross_entropy(network(images), labels)
                loss.backward()
                trainer.step(len(labels))
        metric = mx.metric.Accuracy()
        for images, labels in testing:
            metric.update(labels, network(images))
    return metric.get()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gluon", action="store_true", help="use Gluon and RecordIO files, instead of torch and JPEGs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part, count, first_column in (("train", 160, 0), ("test", 40, 320)):
            write_folder(Path(folder, part), count, first_column, seed=count)
            write_records(Path(folder, part), Path(folder, f"{part}.rec"))
        if arguments.gluon:
            parts = [ImageRecordDataset(Path(folder, f"{part}.rec")) for part in ("train", "test")]
            accuracy = train_gluon(*parts)
        else:
            accuracy = train_torch(*(ImageFolderDataset(Path(folder, part)) for part in ("train", "test")))
    print(f"test accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
