"""`python -m gluonloader doctor`: checks a machine and a dataset, and says how to cure what it finds."""
