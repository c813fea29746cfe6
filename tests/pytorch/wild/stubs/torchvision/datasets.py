"""See `torchvision`."""

VisionDataset = object
