"""MONAI: its loader seeds the transforms of each worker; the transforms here draw nothing."""

import numpy as np
from monai.data import CacheDataset, DataLoader
from monai.transforms import Compose, EnsureChannelFirstd, Resized, ScaleIntensityd
from show import show, workers

count = workers()
items = [{"image": np.random.rand(20, 24), "label": n} for n in range(13)]
transform = Compose(
    [
        EnsureChannelFirstd("image", channel_dim="no_channel"),
        ScaleIntensityd("image"),
        Resized("image", (16, 16)),
    ]
)
dataset = CacheDataset(items, transform, cache_rate=0.5, progress=False)
for _ in range(2):
    for batch in DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count):
        show({"image": batch["image"].as_tensor(), "label": batch["label"]})
