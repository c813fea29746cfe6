"""The parity suite: the same pipelines through `torch.utils.data.DataLoader` and `gluonloader.torch.DataLoader`."""
