"""TorchIO: patches of a grid, and a queue of patches that has a loader of its own for the volumes."""

import torch
import torchio
from show import show, workers

count = workers()
volumes = [torchio.Subject(scan=torchio.ScalarImage(tensor=torch.rand(1, 12, 12, 12)), name=str(n)) for n in range(6)]
subjects = torchio.SubjectsDataset(volumes, transform=torchio.ZNormalization())
for batch in torchio.SubjectsLoader(subjects, batch_size=2, shuffle=True, num_workers=count):
    show([batch["scan"]["data"], batch["name"]])
grid = torchio.GridSampler(volumes[0], patch_size=6)
for batch in torchio.SubjectsLoader(grid, batch_size=4, num_workers=count):
    show([batch["scan"]["data"], batch["location"]])
