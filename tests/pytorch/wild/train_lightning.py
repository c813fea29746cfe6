"""Lightning: a Trainer with a validation loop."""

import lightning
import torch
from show import show, workers
from torch.utils.data import DataLoader, TensorDataset

count = workers()


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))

    def training_step(self, batch, number):
        show(list(batch))
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, number):
        show(list(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


dataset = TensorDataset(torch.rand(50, 4), torch.rand(50, 1))
model = Model()
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(
    model,
    DataLoader(dataset, 8, shuffle=True, num_workers=count),
    DataLoader(dataset, 16, num_workers=count, persistent_workers=count > 0),
)
show(list(model.state_dict().values()))
