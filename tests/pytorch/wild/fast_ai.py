"""fastai: its loader does not derive from torch's, but uses the parts of torch's iterators."""

import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from show import show, workers

count = workers()
items = list(zip(torch.rand(80, 4), torch.rand(80, 1), strict=True))
train = DataLoader(items, bs=8, shuffle=True, drop_last=True, num_workers=count)
valid = DataLoader(items[:20], bs=8, num_workers=count)
learner = Learner(DataLoaders(train, valid), torch.nn.Linear(4, 1), loss_func=torch.nn.functional.mse_loss, cbs=[])
with learner.no_bar(), learner.no_logging():
    learner.fit(2, 0.1)
for batch in valid:
    show(list(batch))
show(learner.recorder.values)
