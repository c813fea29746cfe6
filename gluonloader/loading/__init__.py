"""The parts of a loader except executors: arguments, plan, window, choice of executor, statistics."""
