"""Progress is shown on a terminal, and only there; bars of other libraries know the length of a loader."""

import contextlib
import io
import os

import pytest
from conftest import ANY
from record_files import write
from samples import Numbered
from terminals import shown_on_a_terminal

from gluonloader.progress import ProgressBar
from gluonloader.records.index import build_index


def work():
    with ProgressBar(4000, "records") as progress:
        progress.advance(1000)
        progress.advance(3000)


def test_a_bar_shows_how_much_is_done():
    assert "4,000 of 4,000 records" in shown_on_a_terminal(work)


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_there_is_no_bar_outside_of_a_terminal(stderr):
    with contextlib.redirect_stderr(stderr):
        work()
    assert stderr is None or stderr.getvalue() == ""


def test_building_an_index_shows_a_bar(tmp_path):
    write(tmp_path / "x", [bytes(10)] * 3000)
    size = os.path.getsize(tmp_path / "x.rec")
    assert f"{size:,} of {size:,} bytes" in shown_on_a_terminal(lambda: build_index(tmp_path / "x.rec"))


@pytest.mark.parametrize("way", ANY, ids=str)
def test_tqdm_knows_the_length_of_a_loader(way):
    tqdm = pytest.importorskip("tqdm").tqdm
    with way.loader(Numbered(40), 4) as loader:
        shown = tqdm(loader, file=io.StringIO())
        assert shown.total == 10
        assert len(list(shown)) == 10


@pytest.mark.parametrize("way", ANY, ids=str)
def test_rich_knows_the_length_of_a_loader(way):
    progress = pytest.importorskip("rich.progress")
    with way.loader(Numbered(40), 4) as loader, progress.Progress(disable=True) as bars:
        assert len(list(bars.track(loader))) == 10
        assert [(task.total, task.completed) for task in bars.tasks] == [(10, 10)]
