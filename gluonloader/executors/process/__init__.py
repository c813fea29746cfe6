"""The process executor: persistent worker processes, each with a lane of its own."""

from .executor import ProcessExecutor as ProcessExecutor
