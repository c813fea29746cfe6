"""PyTorch Metric Learning: a sampler of classes, and the trainer, which makes its loader by itself."""

import torch
from pytorch_metric_learning import losses, samplers, trainers
from show import show, workers
from torch.utils.data import TensorDataset

count = workers()
labels = torch.randint(5, (160,))
dataset = TensorDataset(torch.rand(160, 8), labels)
trunk = torch.nn.Linear(8, 4)
seen = []
trainer = trainers.MetricLossOnly(
    {"trunk": trunk},
    {"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.1)},
    32,
    {"metric_loss": losses.TripletMarginLoss()},
    dataset,
    sampler=samplers.MPerClassSampler(labels, 8, batch_size=32, length_before_new_iter=160),
    dataloader_num_workers=count,
    end_of_iteration_hook=lambda it: seen.append(float(it.losses["total_loss"].detach())),
    data_device="cpu",
    dtype=torch.float32,
)
trainer.train(num_epochs=2)
show(seen)
show([weight.detach() for weight in trunk.parameters()])
