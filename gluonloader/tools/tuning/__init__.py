"""Finds the arguments of `DataLoader` that are best for a dataset, by measuring."""
