"""What a worker does: a task, how one batch is made, and what the user's functions are told. No executors here."""
