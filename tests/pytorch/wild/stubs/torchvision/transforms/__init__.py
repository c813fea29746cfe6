"""See `torchvision`."""
