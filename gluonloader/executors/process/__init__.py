"""The process executor: persistent worker processes, each with its own lane."""

from .process_executor import ProcessExecutor as ProcessExecutor
