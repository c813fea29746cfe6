"""Runs code with a terminal as its standard error."""

import contextlib
import os
import pty


def shown_on_a_terminal(call):
    """What `call` shows on a terminal."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as stderr, contextlib.redirect_stderr(stderr):
        call()
        print("end", file=stderr, flush=True)  # so that the next line never blocks
        shown = os.read(ours, 10000).decode()
    os.close(ours)
    return shown
