"""The page for torch's users lists the expected failures of this folder, each with its reason, and no others."""

import re
from pathlib import Path

import pytest

from .differences import DIFFERENCES, differs

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "migrating-from-torch.md"


def rows():
    """Id and reason of each row of the page's tables of differences."""
    section = PAGE.read_text().split("\n## Differences of gluonloader.torch.DataLoader\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([^|]+) \|$", section, re.MULTILINE)


def test_the_page_and_the_tests_name_the_same_differences_and_reasons():
    assert dict(rows()) == DIFFERENCES
    assert len(rows()) == len(DIFFERENCES)


def test_every_difference_has_a_test():
    written = "".join(path.read_text() for path in HERE.glob("test_parity_*.py"))
    assert set(re.findall(r'differs\(\s*"([a-z0-9-]+)"', written)) == DIFFERENCES.keys()


def test_a_difference_that_is_not_listed_is_refused():
    with pytest.raises(KeyError):
        differs("no-such-difference")
