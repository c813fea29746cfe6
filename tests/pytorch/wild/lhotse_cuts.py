"""Lhotse: batches that are chosen by duration, in a dataset that gets whole batches (`batch_size=None`)."""

from lhotse import CutSet
from lhotse.dataset import DynamicBucketingSampler, SimpleCutSampler
from lhotse.testing.dummies import dummy_cut
from show import show, workers
from torch.utils.data import DataLoader, Dataset

count = workers()


class Durations(Dataset):
    def __getitem__(self, cuts):
        return [(cut.id, cut.duration) for cut in cuts]


cuts = CutSet.from_cuts(dummy_cut(n, duration=1.0 + n % 7) for n in range(60))
for kind in (SimpleCutSampler, DynamicBucketingSampler):
    options = {"num_buckets": 4} if kind is DynamicBucketingSampler else {}
    sampler = kind(cuts, max_duration=20.0, shuffle=True, seed=3, **options)
    loader = DataLoader(Durations(), sampler=sampler, batch_size=None, num_workers=count)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            show(batch)
