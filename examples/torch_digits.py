"""Trains a torch network on scikit-learn's digits.

    pip install ".[examples,torch]"
    python examples/torch_digits.py

Batches are tensors that refer to the shared memory that the workers wrote, without a copy.
"""

import torch
from digits import CLASSES, SIZE, load_datasets
from torch import nn
from tqdm import tqdm

from gluonloader import DataLoader

EPOCHS, HIDDEN, RATE = 30, 128, 0.15


@torch.no_grad()
def accuracy(network, loader):
    hits = [network(images).argmax(dim=1) == labels for images, labels in loader]
    return torch.cat(hits).float().mean().item()


def main():
    train_data, test_data = load_datasets()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # with more threads, a network of this size trains more slowly
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / EPOCHS)
    cross_entropy = nn.CrossEntropyLoss()
    with DataLoader(
        train_data, batch_size=32, shuffle=True, last_batch="rollover", num_workers=2, seed=0, output="torch"
    ) as loader:
        for _ in (bar := tqdm(range(EPOCHS), unit="epoch")):
            for images, labels in loader:
                loss = cross_entropy(network(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            decay.step()
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
    print(f"test accuracy: {accuracy(network, DataLoader(test_data, batch_size=120, output='torch')):.4f}")


if __name__ == "__main__":
    main()
