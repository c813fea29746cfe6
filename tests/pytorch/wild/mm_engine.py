"""mmengine: its runner builds the loader from a configuration, with its own sampler and collate function."""

import tempfile

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from show import show, workers
from torch.utils.data import TensorDataset

count = workers()
dataset = TensorDataset(torch.rand(50, 4), torch.rand(50, 1))


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, y, mode):
        show([x, y])
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), y)}


with tempfile.TemporaryDirectory() as folder:
    runner = Runner(
        Model(),
        folder,
        train_dataloader={
            "dataset": dataset,
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "batch_size": 8,
            "num_workers": count,
            "collate_fn": {"type": "default_collate"},
        },
        train_cfg={"by_epoch": True, "max_epochs": 2},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        randomness={"seed": 0},
        log_level="ERROR",
    )
    show(list(runner.train().state_dict().values()))
