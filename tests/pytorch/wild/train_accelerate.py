"""Accelerate: a prepared loader, and the rest of an epoch."""

import torch
from accelerate import Accelerator, skip_first_batches
from show import show, workers
from torch.utils.data import DataLoader, TensorDataset

count = workers()
dataset = TensorDataset(torch.rand(50, 4), torch.rand(50, 1))
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(dataset, 8, shuffle=True, num_workers=count)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(3):
    for x, y in loader if epoch else skip_first_batches(loader, 3):
        show([x, y])
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
show(list(model.state_dict().values()))
