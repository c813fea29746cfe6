"""Where work runs: in the caller, in threads, in processes; three executors behind one protocol (`base.Executor`)."""
