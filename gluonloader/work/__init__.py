"""The work of a worker, in any executor: a task, how its batch is made, and the information for user code."""
