"""Trains with Lightning Fabric: prints the loss and the indices of each step, and saves the state in mid-epoch.

Arguments: the folder of the checkpoint; "train" or "resume"; how many processes.
"""

import sys

import lightning
import torch
from training import BATCH, Points, loss_of, model, report

from gluonloader.torch import DataLoader

EPOCHS, SAVED_EPOCH, SAVED_STEP = 3, 1, 5


def main(folder, task, processes):
    fabric = lightning.Fabric(accelerator="cpu", devices=int(processes))
    fabric.launch()
    lightning.seed_everything(0, verbose=False)
    network = model()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    network, optimizer = fabric.setup(network, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(Points(), batch_size=BATCH, shuffle=True, num_workers=2))
    state = {"network": network, "optimizer": optimizer, "loader": loader, "step": -1, "epoch": 0}
    if task == "resume":
        fabric.load(f"{folder}/state.ckpt", state)
    steps = []
    for epoch in range(state["epoch"], EPOCHS):
        state["epoch"] = epoch
        for step, batch in enumerate(loader, state["step"] + 1):
            state["step"] = step
            loss = loss_of(network, batch)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps.append([epoch, step, loss.item(), batch["index"].tolist()])
            if task == "train" and (epoch, step) == (SAVED_EPOCH, SAVED_STEP):
                fabric.save(f"{folder}/state.ckpt", state)
        state["step"] = -1
    report(steps)


main(*sys.argv[1:])
