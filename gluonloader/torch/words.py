"""Texts of the core loader in the words of torch's loader, whose arguments have other names."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from ..errors import GluonLoaderError, RemoteTraceback, notes_of, words_of

_WORDS: Final = [
    (re.compile(pattern), words)
    for pattern, words in (
        # The user's function or dataset, in an object of ours.
        (r"\b(batchify_fn|worker_init_fn)\.(collate_fn|worker_init_fn)\b", r"\1"),
        (r"\bdataset\.dataset\b", "dataset"),
        (r"did you mean ArrayDataset\b", "did you mean TensorDataset"),
        (r"pad them with Pad\(\) in the batchify_fn", "pad them in the collate_fn, e.g. by gluonloader.Pad()"),
        (r"\bbatchify_fn\b", "collate_fn"),
        (r"\bprefetch\b", "prefetch_factor"),
        (r"\bstart_method\b", "multiprocessing_context"),
        (r"\bauto_reload=True\b", "persistent_workers=True"),
        (r"(num_workers=\d+) or 'auto'", r"\1"),
        (r"\bloader\.replay\(\d+, (\d+)\)", r"loader.replay(\1)"),
        (r"\bsample (\d+) of shard (\d+)( of \d+ \(chunk \d+\))?", r"batch \1 of worker \2"),  # see `Replicas`
    )
]
_OURS: Final = "gluonloader: "  # the start of the library's notes


def in_torchs_words(text: str) -> str:
    """A text of the library with torch's names of arguments.

    >>> in_torchs_words("raise prefetch, or pass auto_reload=True")
    'raise prefetch_factor, or pass persistent_workers=True'
    """
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def advice_in_torchs_words(text: str, persistent_workers: bool) -> str:
    """Advice for a loader with or without `persistent_workers`."""
    if persistent_workers:
        for untrue in (", and each epoch starts when the program asks for it", ", or pass auto_reload=True"):
            text = text.replace(untrue, "")
    return in_torchs_words(text)


words_of["torch"] = in_torchs_words


def use_torchs_words(error: BaseException) -> None:
    """Changes the library's texts in an error: its notes and, of an error of the library, its own text."""
    with suppress(Exception):  # the attributes of some exceptions cannot be set
        if notes := notes_of(error):
            error.__dict__["__notes__"] = [in_torchs_words(note) if note.startswith(_OURS) else note for note in notes]
        if isinstance(error.__cause__, RemoteTraceback):
            places, line, shown = str(error.__cause__).partition("\n")
            error.__cause__.args = (in_torchs_words(places) + line + shown,)
        if isinstance(error, GluonLoaderError):
            error.args = tuple(in_torchs_words(part) if isinstance(part, str) else part for part in error.args)
            if isinstance(error, OSError) and error.strerror is not None:
                error.strerror = in_torchs_words(error.strerror)
