"""Executors with one protocol (`base.Executor`) make batches: in the caller, in threads, in processes or by Ray."""
