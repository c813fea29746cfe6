"""`python -m gluonloader plot` draws what a trace contains."""

import json

import pytest
from conftest import FORK
from samples import Numbered

from gluonloader.__main__ import main
from gluonloader.tools.plot import read


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "run.json"
    with FORK.loader(Numbered(40), 4) as loader, loader.trace(path):
        list(loader)
    return path


def test_the_picture_shows_every_row(trace):
    recording = read(str(trace))
    rows = set(recording.rows.values())
    assert {"program"} < rows <= {"program", "worker 0", "worker 1"}  # one worker may make all batches
    assert len(recording.times) == len(recording.ready) == 10
    assert {span.stage for span in recording.spans} >= {"read", "batchify", "transport", "next", "computing"}
    assert recording.verdict == "There is no advice before 32 batches."


def test_a_picture_is_written(trace, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["plot", str(trace), str(tmp_path / "run.png")]) == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    first, verdict = capsys.readouterr().out.splitlines()
    assert "run.png: 10 batches" in first
    assert verdict == "There is no advice before 32 batches."
    assert main(["plot", str(trace), str(tmp_path / "run.svg"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["picture"], result["batches"]) == (str(tmp_path / "run.svg"), 10)
    assert result["waited_s"] > 0
    assert result["verdict"] == verdict
    legend = (tmp_path / "run.svg").read_text()
    assert all(f"<!-- {text} -->" in legend for text in ("program computes", "program waits", "read", verdict))


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"traceEvents": []}), json.dumps({"traceEvents": [{}]})])
def test_another_file_is_an_error(text, tmp_path, capsys):
    (tmp_path / "run.json").write_text(text)
    assert main(["plot", str(tmp_path / "run.json"), str(tmp_path / "run.png")]) == 2
    assert "run.json: th" in capsys.readouterr().err


def test_a_missing_file_is_an_error(tmp_path, capsys):
    assert main(["plot", str(tmp_path / "run.json"), str(tmp_path / "run.png")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run", "run.text", "nowhere/run.png"])
def test_a_picture_that_cannot_be_written_is_an_error(name, trace, tmp_path, capsys):
    """matplotlib adds an ending to a path without one, so the file would not be the one that is printed."""
    pytest.importorskip("matplotlib")
    assert main(["plot", str(trace), str(tmp_path / name)]) == 2
    right = "there is no folder" if name.startswith("nowhere") else "the file must end with .png, .svg or .pdf"
    assert right in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
