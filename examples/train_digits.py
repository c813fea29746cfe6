"""Trains a small classifier on scikit-learn's digits with NumPy and gluonloader only.

    pip install ".[examples]"
    python examples/train_digits.py --help

The accuracy depends on the seed, but not on the number or kind of workers.
"""

import argparse
import time

import numpy as np
from digits import CLASSES, SIZE, load_datasets
from tqdm import tqdm

from gluonloader import DataLoader

HIDDEN = 128


class Network:
    """Pixels -> hidden layer (ReLU) -> class scores, trained by gradient descent with momentum."""

    def __init__(self, rng):
        pixels = SIZE * SIZE
        self.parameters = [
            rng.normal(0, np.sqrt(2 / pixels), (pixels, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(0, np.sqrt(2 / HIDDEN), (HIDDEN, CLASSES)),
            np.zeros(CLASSES),
        ]
        self.velocities = [np.zeros_like(parameter) for parameter in self.parameters]

    def scores(self, images):
        """Computes the output of the hidden layer and the class scores."""
        weights, bias, out_weights, out_bias = self.parameters
        hidden = np.maximum(images @ weights + bias, 0)
        return hidden, hidden @ out_weights + out_bias

    def train(self, images, labels, rate, momentum=0.9):
        """Takes one step of gradient descent on a batch; returns its cross-entropy."""
        hidden, scores = self.scores(images)
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(chances[rows, labels]).mean()

        error = chances
        error[rows, labels] -= 1
        error /= len(labels)
        hidden_error = (error @ self.parameters[2].T) * (hidden > 0)
        gradients = [images.T @ hidden_error, hidden_error.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        for parameter, velocity, gradient in zip(self.parameters, self.velocities, gradients, strict=True):
            velocity *= momentum
            velocity -= rate * gradient
            parameter += velocity
        return loss


def flat(images):
    return images.reshape(len(images), -1)


def accuracy(network, loader):
    hits = samples = 0
    for images, labels in loader:
        _, scores = network.scores(flat(images))
        hits += np.count_nonzero(scores.argmax(axis=1) == labels)
        samples += len(labels)
    return hits / samples


def arguments():
    parser = argparse.ArgumentParser(description="Train a small classifier on scikit-learn's digits.")
    parser.add_argument("--workers", type=int, default=2, help="number of workers; 0 loads in the main program")
    parser.add_argument("--executor", choices=["serial", "thread", "process"], help="default: by --workers")
    parser.add_argument("--start-method", choices=["fork", "forkserver", "spawn"], help="default: the library's")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    options = arguments()
    train_data, test_data = load_datasets(options.seed)
    network = Network(np.random.default_rng(options.seed))
    samples, started = 0, time.perf_counter()
    with DataLoader(
        train_data,
        batch_size=32,
        shuffle=True,
        last_batch="rollover",  # if the last batch is too short, its samples move to the start of the next epoch
        num_workers=options.workers,
        executor=options.executor,
        start_method=options.start_method,
        seed=options.seed,
    ) as loader:
        for epoch in (bar := tqdm(range(options.epochs), unit="epoch")):
            rate = 0.15 * (1 - epoch / options.epochs)
            for images, labels in loader:
                loss = network.train(flat(images), labels, rate)
                samples += len(labels)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
    seconds = time.perf_counter() - started

    print(f"test accuracy: {accuracy(network, DataLoader(test_data, batch_size=256)):.4f}")
    print(f"samples per second: {samples / seconds:,.0f} ({options.workers} workers, {seconds:.1f} s)")


if __name__ == "__main__":
    main()
