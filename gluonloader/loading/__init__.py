"""What a loader is made of besides executors: arguments, plan, window, choice of executor, statistics."""
