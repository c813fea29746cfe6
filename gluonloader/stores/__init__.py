"""Objects of a store that are read through a folder on a local disk."""
