"""The tables of README.md, docs/speed.md and docs/stores.md show the figures of the pages of results."""

import re

import pytest

tables = pytest.importorskip("benchmarks.tables")


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_pages_show_the_results(path):
    text = path.read_text()
    assert re.findall(r"<!-- results: \w+ -->", text), "it has no table of results"
    assert text == tables.updated(text, tables.PAGES[path].read_text()), "run python -m benchmarks.tables"


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_a_figure_that_was_changed_by_hand_is_noticed(path):
    text = path.read_text()
    start = text.index("<!-- results:")
    changed = text[:start] + re.sub(r"\d+(\.\d+)? (us|ms)", "1 us", text[start:], count=1)
    assert changed != text
    assert tables.updated(changed, tables.PAGES[path].read_text()) == text


def test_every_table_is_on_a_page():
    shown = [name for path in tables.PAGES for name in re.findall(r"<!-- results: (\w+) -->", path.read_text())]
    assert sorted(shown) == sorted(tables.TABLES)
