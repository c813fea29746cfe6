r"""Tables of mistakes with the errors and warnings that answer them: each row is a call, an arrow and a text.

    load(NUMBERS, 64 / 2) -> batch_size=32.0: must be an int >= 1
    load(NUMBERS, drop_last=True)
        -> TypeError: DataLoader() has no argument drop_last: pass last_batch="discard" instead

The answer is a ValueError, unless the text starts with another class of errors or warnings. The text is complete, with
all notes; "..." in it stands for any characters, and "\n" for a line break. Lines that are indented belong to the line
above, and lines that start with "#" are headings.
"""

import bdb
import builtins
import re

import pytest

import gluonloader
from gluonloader import errors

PLACES = builtins, bdb, errors  # of classes of errors


def mistakes(names, table):
    """Parametrizes a test by `mistake`, over the rows of a table; the calls use these globals, and the public names."""
    rows = []
    for line in filter(str.strip, table.splitlines()):
        if line[0].isspace():
            rows[-1] += f" {line.strip()}"
        elif line[0] != "#":
            rows.append(line)
    made = [Mistake(names, *row.split(" -> ", 1)) for row in rows]
    return pytest.mark.parametrize("mistake", made, ids=lambda mistake: mistake.call[:70])


class Mistake:
    """A call, and the answer that it gets."""

    def __init__(self, names, call, text):
        self.names, self.call = names, call
        word, _, rest = text.partition(": ")
        kind = next((getattr(place, word) for place in PLACES if hasattr(place, word)), None)
        is_kind = isinstance(kind, type) and issubclass(kind, Exception)
        self.kind, self.text = (kind, rest) if is_kind else (ValueError, text)

    def check(self):
        """Makes the call, and compares the answer."""
        code, names = compile(self.call, self.names["__file__"], "eval"), {**vars(gluonloader), **self.names}
        if issubclass(self.kind, Warning):
            with pytest.warns(self.kind) as warned:
                eval(code, names)
            assert [warning.filename for warning in warned] == [self.names["__file__"]]
            answer = str(warned[0].message)
        else:
            with pytest.raises(self.kind) as caught:
                eval(code, names)
            answer = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        pattern = re.escape(re.sub(r" ?\\n ", "\n", self.text)).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, answer, re.DOTALL), answer
