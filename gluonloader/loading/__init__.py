"""The parts of a loader except executors: arguments, epochs, plans, positions, choice of executor, statistics."""
