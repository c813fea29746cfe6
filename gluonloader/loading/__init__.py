"""The parts of a loader except executors: epochs, plans, positions, choice of executor."""
