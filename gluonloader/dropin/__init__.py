"""What the replacements of MXNet's and torch's loaders share: `install`, and the command that runs a script."""
