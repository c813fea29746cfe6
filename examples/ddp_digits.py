"""Trains scikit-learn's digits with torch in several processes, as on several GPUs; each reads its part of every epoch.

    pip install ".[examples,torch]"
    torchrun --nproc-per-node 2 examples/ddp_digits.py

Without torchrun, `python examples/ddp_digits.py` starts two processes by itself.
"""

import os

import torch
from digits import CLASSES, SIZE, load_datasets
from torch import distributed, nn
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

from gluonloader import DataLoader

EPOCHS, BATCH, HIDDEN, RATE = 30, 32, 128, 0.15


@torch.no_grad()
def accuracy(network, loader):
    hits = [network(images).argmax(dim=1) == labels for images, labels in loader]
    return torch.cat(hits).float().mean().item()


def train():
    distributed.init_process_group("gloo")  # "nccl" with GPUs
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    train_data, test_data = load_datasets()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    network = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / EPOCHS)
    # The same loader on every rank: ranks="env" reads the rank and the number of ranks from what torchrun has set.
    loader = DataLoader(train_data, BATCH // ranks, shuffle=True, seed=0, ranks="env", num_workers=1, output="torch")
    with loader:
        for _ in range(EPOCHS):
            for images, labels in loader:
                loss = nn.functional.cross_entropy(network(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            decay.step()
    print(f"rank {rank} of {ranks} has read {loader.stats().samples} samples", flush=True)
    distributed.barrier()
    if rank == 0:
        print(f"test accuracy: {accuracy(layers, DataLoader(test_data, batch_size=120, output='torch')):.4f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        torchrun(["--nproc-per-node", "2", __file__])
