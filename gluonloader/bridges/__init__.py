"""Bridges: `bridge` gives the loader of another library the interface of `DataLoader`."""
