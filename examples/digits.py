"""Scikit-learn's digits as a training and a test dataset, shared by all examples."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gluonloader import ArrayDataset, get_rng

SIZE, CLASSES = 8, 10


def scale(image, label):
    """Scales grey values from 0..16 to 0..1."""
    return (image / 16).astype(np.float32), label


def scale_and_shift(image, label):
    """Scales an image and shifts it by up to one pixel, as augmentation for training.

    `get_rng()` is the random generator of the current sample, so the shifts do not depend on which worker reads it.
    """
    top, left = get_rng().integers(0, 3, size=2)
    framed = np.zeros((SIZE + 2, SIZE + 2), image.dtype)
    framed[1:-1, 1:-1] = image
    return scale(framed[top : top + SIZE, left : left + SIZE], label)


def load_datasets(seed=0):
    """The training and test datasets; a sample is an image, float32 of shape (8, 8), and its label, 0 to 9."""
    digits = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=seed, stratify=digits.target
    )
    train = ArrayDataset(train_images, train_labels).transform(scale_and_shift)
    return train, ArrayDataset(test_images, test_labels).transform(scale)
