"""The commands of `python -m gluonloader`."""
