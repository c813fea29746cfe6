"""Training loops as torch's documentation publishes them: only the import of DataLoader changes, not the losses.

Each loop is a text that is run as a program, once as published and once with the other import. The images are made
here instead of downloaded.
"""

import pytest

from .sides import seed_all, torch

AS_PUBLISHED = "from torch.utils.data import DataLoader"
CHANGED = "from gluonloader.torch import DataLoader"

# https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html
TRANSFER = """
import time
from copy import deepcopy
import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

image_datasets = {'train': make_images(96), 'val': make_images(40)}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=4,
                             shuffle=True, num_workers=WORKERS)
              for x in ['train', 'val']}
dataset_sizes = {x: len(image_datasets[x]) for x in ['train', 'val']}
device = torch.device('cpu')

def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    best_model_wts, best_acc = deepcopy(model.state_dict()), 0.0

    for epoch in range(num_epochs):
        # Each epoch has a training and validation phase
        for phase in ['train', 'val']:
            if phase == 'train':
                model.train()  # Set model to training mode
            else:
                model.eval()   # Set model to evaluate mode

            running_loss = 0.0
            running_corrects = 0

            # Iterate over data.
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)

                # zero the parameter gradients
                optimizer.zero_grad()

                # forward
                # track history if only in train
                with torch.set_grad_enabled(phase == 'train'):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)

                    # backward + optimize only if in training phase
                    if phase == 'train':
                        loss.backward()
                        optimizer.step()

                # statistics
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == 'train':
                scheduler.step()

            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print(f'{phase} Loss: {epoch_loss:.4f} Acc: {epoch_acc:.4f}')
            losses.append(epoch_loss)

            # deep copy the model
            if phase == 'val' and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = deepcopy(model.state_dict())

    model.load_state_dict(best_model_wts)
    return model

# Get a batch of training data
inputs, classes = next(iter(dataloaders['train']))
print(classes.tolist())

# Dropout draws from the same generator as the samplers
model_ft = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 10))
criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.01, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=7, gamma=0.1)
model_ft = train_model(model_ft, criterion, optimizer_ft, exp_lr_scheduler, num_epochs=2)
"""

# https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html, in one process on the CPU
DDP_SERIES = """
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group

class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]

class Trainer:
    def __init__(self, model, train_data, optimizer, save_every):
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.model = DDP(model)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.mse_loss(output, targets)
        loss.backward()
        self.optimizer.step()
        losses.append(loss.item())

    def _run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self._run_batch(source, targets)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)

def load_train_objs():
    train_set = MyTrainDataset(128)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return train_set, model, optimizer

def prepare_dataloader(dataset, batch_size):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        pin_memory=False,
        shuffle=False,
        num_workers=WORKERS,
        sampler=DistributedSampler(dataset)
    )

init_process_group(backend="gloo", init_method=RENDEZVOUS, rank=0, world_size=1)
try:
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, 32)
    trainer = Trainer(model, train_data, optimizer, 10)
    trainer.train(3)
finally:
    destroy_process_group()
"""


class Images(torch.utils.data.Dataset):
    """Images of 28x28 pixels in the manner of FashionMNIST: the label is where they are bright."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.labels = torch.randint(10, (count,), generator=generator).tolist()
        self.images = torch.rand(count, 1, 28, 28, generator=generator)
        for image, label in zip(self.images, self.labels):
            image[:, label * 2 : label * 2 + 4] += 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def trained(program, workers, rendezvous):
    """Runs a program; returns all its losses."""
    seed_all(0)
    torch.set_num_threads(1)  # for so small a network, more threads only wait for each other
    names = {"make_images": Images, "WORKERS": workers, "losses": [], "RENDEZVOUS": rendezvous}
    exec(compile(program, "program", "exec"), names)
    return names["losses"]


@pytest.mark.parametrize("name", ["TRANSFER", "DDP_SERIES"])
def test_a_published_loop_has_the_same_losses(name, workers, tmp_path):
    program = globals()[name]
    assert program.count(AS_PUBLISHED) == 1
    theirs = trained(program, workers, f"file://{tmp_path}/theirs")
    ours = trained(program.replace(AS_PUBLISHED, CHANGED), workers, f"file://{tmp_path}/ours")
    assert ours == theirs
    assert len(ours) >= 4
    assert ours[-1] < ours[0]
