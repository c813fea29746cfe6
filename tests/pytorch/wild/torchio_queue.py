"""TorchIO: a queue of random patches, with a loader of its own for the volumes."""

import torch
import torchio
from show import show, workers

count = workers()
volumes = [torchio.Subject(scan=torchio.ScalarImage(tensor=torch.rand(1, 12, 12, 12)), name=str(n)) for n in range(6)]
subjects = torchio.SubjectsDataset(volumes, transform=torchio.ZNormalization())
queue = torchio.Queue(subjects, 12, 4, torchio.UniformSampler(6), num_workers=count)
for batch in torchio.SubjectsLoader(queue, batch_size=4):
    show([batch["scan"]["data"], batch["location"], batch["name"]])
