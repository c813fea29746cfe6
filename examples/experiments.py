"""Trains three networks with different learning rates at the same time, from one loader.

    pip install ".[examples]"
    python examples/experiments.py

The server makes each batch once, and each experiment gets all batches. Your own experiments are usually programs that
you start by hand: one of them is `python -m gluonloader serve`, the others call `gluonloader.attach`.
"""

import multiprocessing
import os

import numpy as np
from digits import load_datasets
from train_digits import Network, accuracy, flat

from gluonloader import DataLoader, attach, serve

EPOCHS, RATES = 30, (0.3, 0.1, 0.001)


def experiment(name, rate, results):
    """Runs in a process of its own: trains a network, and sends its accuracy."""
    network = Network(np.random.default_rng(0))
    with attach(name, wait=60) as loader:
        for epoch in range(EPOCHS):
            for images, labels in loader:
                network.train(flat(images), labels, rate * (1 - epoch / EPOCHS))
    _, test_data = load_datasets()
    results.put((rate, accuracy(network, DataLoader(test_data, batch_size=256))))


def main():
    name = f"digits.{os.getpid()}"
    spawn = multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    processes = [spawn.Process(target=experiment, args=(name, rate, results)) for rate in RATES]
    for process in processes:
        process.start()
    train_data, _ = load_datasets()
    loader = DataLoader(train_data, 32, shuffle=True, seed=0, num_workers=1, last_batch="discard")
    with loader, serve(loader, name, consumers=len(RATES)) as server:
        found = sorted(results.get() for _ in RATES)
        for process in processes:
            process.join()
        batches = server.stats().batches
    for rate, share in found:
        print(f"learning rate {rate}: test accuracy {share:.4f}")
    needed = EPOCHS * len(loader)
    print(f"{len(RATES) * needed} batches were read, {needed} were needed once, {batches} were made")


if __name__ == "__main__":
    main()
