"""Scikit-learn's digits as two datasets: what all examples train on, whatever their framework."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gluonloader import ArrayDataset, get_rng

SIZE, CLASSES = 8, 10


def scale(image, label):
    """One sample as the network takes it. Grey values are 0 to 16."""
    return (image / 16).astype(np.float32), label


def scale_and_shift(image, label):
    """The same, moved by up to one pixel: augmentation for training.

    `get_rng()` is the generator of the batch that is being made, so the shifts are the same for any worker.
    """
    top, left = get_rng().integers(0, 3, size=2)
    framed = np.zeros((SIZE + 2, SIZE + 2), image.dtype)
    framed[1:-1, 1:-1] = image
    return scale(framed[top : top + SIZE, left : left + SIZE], label)


def load_datasets(seed=0):
    """Training and test data; a sample is an image, float32 of shape (8, 8), and its label, 0 to 9."""
    digits = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=seed, stratify=digits.target
    )
    train = ArrayDataset(train_images, train_labels).transform(scale_and_shift)
    return train, ArrayDataset(test_images, test_labels).transform(scale)
