"""SpeechBrain: its loader with a checkpoint of the position, a bucketing sampler and padded batches."""

import torch
from show import show, workers
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.dataio.dataloader import SaveableDataLoader
from speechbrain.dataio.dataset import DynamicItemDataset
from speechbrain.dataio.sampler import ReproducibleRandomSampler

count = workers()
items = {str(n): {"length": 2 + n % 5} for n in range(30)}
dataset = DynamicItemDataset(items)
dataset.add_dynamic_item(lambda length: torch.arange(float(length)), takes="length", provides="signal")
dataset.set_output_keys(["id", "signal"])
sampler = ReproducibleRandomSampler(dataset, seed=1)
loader = SaveableDataLoader(dataset, batch_size=4, sampler=sampler, num_workers=count, collate_fn=PaddedBatch)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        show([batch.id, batch.signal.data, batch.signal.lengths])
