"""Trains with Accelerate: prints the loss and the indices of each step, and saves the state in mid-epoch.

Arguments: the folder of the checkpoint; "train" or "resume"; "stateful" or "skip".
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from training import BATCH, Points, loss_of, model, report

from gluonloader.torch import DataLoader
from gluonloader.torch.accelerate import prepare, skip_first_batches

EPOCHS, SAVED_EPOCH, SAVED_STEP = 3, 1, 5


def main(folder, task, way):
    set_seed(0)
    config = DataLoaderConfiguration(use_seedable_sampler=True, use_stateful_dataloader=way == "stateful")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, dataloader_config=config)
    data = Points(noise=0.1 if way == "stateful" else 0)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2)
    network = model(dropout=0.2)  # its random numbers are in the checkpoint, too
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    network, optimizer, loader = prepare(accelerator, network, optimizer, loader)
    first_epoch, first_step, steps = 0, 0, []
    if task == "resume":
        accelerator.load_state(folder)
        first_epoch, first_step = SAVED_EPOCH, SAVED_STEP + 1
    for epoch in range(first_epoch, EPOCHS):
        loader.set_epoch(epoch)
        batches = loader if way == "stateful" else skip_first_batches(loader, first_step)
        for step, batch in enumerate(batches, first_step):
            with accelerator.accumulate(network):
                loss = loss_of(network, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            steps.append([epoch, step, loss.item(), batch["index"].tolist(), accelerator.sync_gradients])
            if task == "train" and (epoch, step) == (SAVED_EPOCH, SAVED_STEP):
                accelerator.save_state(folder, safe_serialization=False)
        first_step = 0
    report(steps)
    accelerator.end_training()


main(*sys.argv[1:])
