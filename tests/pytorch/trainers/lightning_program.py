"""Trains and validates with Lightning: prints the loss and the indices of each step, and saves the state in mid-epoch.

Arguments: the folder of the checkpoint; "train" or "resume"; how many processes.
"""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from training import BATCH, SAMPLES, Points, loss_of, model, report

from gluonloader.torch import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network, self.steps = model(), []

    def training_step(self, batch, number):
        loss = loss_of(self.network, batch)
        self.steps.append([self.current_epoch, number, loss.item(), batch["index"].tolist()])
        return loss

    def validation_step(self, batch, number):
        if not self.trainer.sanity_checking:
            loss = loss_of(self.network, batch)
            self.steps.append([self.current_epoch, SAMPLES + number, loss.item(), batch["index"].tolist()])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def main(folder, task, processes):
    lightning.seed_everything(0, verbose=False)
    saved = SAMPLES // BATCH // int(processes) + 6  # 6 steps of the second epoch
    loader = DataLoader(Points(), batch_size=BATCH, shuffle=True, num_workers=2)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(processes), max_epochs=3, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
        callbacks=[ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=saved, save_top_k=-1)],
    )  # fmt: skip
    module = Module()
    path = f"{folder}/step={saved}.ckpt" if task == "resume" else None
    trainer.fit(module, loader, DataLoader(Points(8), batch_size=BATCH, num_workers=1), ckpt_path=path)
    used = trainer.train_dataloader
    assert type(used) is DataLoader
    assert [used.num_workers, used.executor] == [2, None]
    report(module.steps)


main(*sys.argv[1:])
