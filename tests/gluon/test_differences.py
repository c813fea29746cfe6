"""The page for Gluon's users lists the expected failures of this folder, each with its reason, and no others."""

import pytest
from parity import check_differences

from .differences import DIFFERENCES, differs


def test_the_page_and_the_tests_name_the_same_differences_and_reasons():
    check_differences(DIFFERENCES, "gluon", "gluon.md")


def test_a_difference_that_is_not_listed_is_refused():
    with pytest.raises(KeyError):
        differs("no-such-difference")
