"""See `torchvision`."""

to_tensor = None
