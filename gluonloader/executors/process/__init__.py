"""The process executor: persistent worker processes, each with its own lane."""

from .executor import ProcessExecutor as ProcessExecutor
