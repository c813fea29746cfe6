"""The commands of `python -m gluonloader`, and what they are made of."""
