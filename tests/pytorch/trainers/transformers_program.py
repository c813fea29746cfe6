"""Trains with the Trainer of transformers: prints the loss and the indices of each step, and saves in mid-epoch.

Arguments: the folder of the checkpoints; "train" or "resume".
"""

import sys

import torch
import transformers
from training import BATCH, Points, loss_of, model, report

from gluonloader.torch.transformers import TrainerMixin

SAVED_STEP = 28  # after 6 of the 22 steps of the second epoch


class Trainer(TrainerMixin, transformers.Trainer):
    pass


class Network(torch.nn.Module):
    """Returns the loss, and writes down the samples of each step."""

    def __init__(self):
        super().__init__()
        self.network, self.steps = model(dropout=0.2), []

    def forward(self, x, labels, index):
        loss = loss_of(self.network, {"x": x, "labels": labels})
        if self.training:
            self.steps.append([loss.item(), index.tolist()])
        return {"loss": loss, "logits": labels}


def main(folder, task):
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=3, per_device_train_batch_size=BATCH, learning_rate=0.05, use_cpu=True, seed=0,
        save_steps=SAVED_STEP, eval_strategy="epoch", report_to=[], disable_tqdm=True, remove_unused_columns=False,
        dataloader_num_workers=2, dataloader_pin_memory=False,
    )  # fmt: skip
    network = Network()
    trainer = Trainer(network, arguments, train_dataset=Points(noise=0), eval_dataset=Points(8, noise=0))
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{SAVED_STEP}" if task == "resume" else None)
    evaluations = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    trainer.predict(Points(4, noise=0))
    report({"steps": network.steps, "evaluations": evaluations})


main(*sys.argv[1:])
