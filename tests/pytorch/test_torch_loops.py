"""Training loops in the manner of torch's tutorials: with our loader, they have the losses that they have with torch's.

The images are made here instead of downloaded.
"""

from .sides import compared, torch

data, nn = torch.utils.data, torch.nn


class Images(data.Dataset):
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


@compared
def test_training_and_validation(L, workers):
    """The loop of beginner/transfer_learning_tutorial.html. Dropout draws from the same generator as the samplers."""
    train, validate = (L(Images(count), 4, shuffle=True, num_workers=workers) for count in (96, 40))
    _, shown = next(iter(train))
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(2):
        for loader in (train, validate):
            model.train(loader is train)
            for inputs, labels in loader:
                optimizer.zero_grad()
                with torch.set_grad_enabled(loader is train):
                    loss = nn.functional.cross_entropy(model(inputs), labels)
                if loader is train:
                    loss.backward()
                    optimizer.step()
                losses.append(loss.item())
    assert sum(losses[-10:]) < sum(losses[:10])
    return shown, losses


@compared
def test_distributed_training(L, workers):
    """The loop of beginner/ddp_series_multigpu.html, in one process on the CPU."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        dataset = data.TensorDataset(torch.rand(128, 20), torch.rand(128, 1))
        model = nn.parallel.DistributedDataParallel(nn.Linear(20, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        loader = L(dataset, 32, shuffle=False, num_workers=workers, sampler=data.DistributedSampler(dataset))
        losses = []
        for epoch in range(3):
            losses.append((epoch, len(next(iter(loader))[0]), len(loader)))
            loader.sampler.set_epoch(epoch)
            for source, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(source), targets)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses
    finally:
        torch.distributed.destroy_process_group()
