"""The process executor: persistent worker processes, each with its own lane."""
