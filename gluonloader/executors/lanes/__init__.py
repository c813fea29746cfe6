"""What the executors with workers in other processes share: which worker makes which batch, and who waits for it."""
