"""Three executors with the same protocol (`base.Executor`) make batches: in the caller, in threads or in processes."""
