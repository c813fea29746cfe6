"""The documentation is true: its Python blocks print what it shows, and it lists every error and room.

Every ```python block of README.md and docs/*.md runs, in order, one program per page, with warnings as errors. If a
```text block follows directly, the Python block has to print it. A block that imports a framework is skipped if that is
not installed. So each block that uses a framework has to import it, even if a block above does.
"""

import builtins
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import gluonloader
from gluonloader import errors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# What processes of Ray print. Sometimes a process that has to end fails in Ray's own code ("bad optional access"), and
# sometimes Ray tells of an actor that was ended as of one that has died.
OF_RAY = re.compile(r"^\x1b\[\d+m\((?:\w+ pid=|raylet).*\n", re.MULTILINE)

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAMEWORKS = "mxnet|torch|cv2|jax|ml_dtypes|pyarrow|h5py|zarr|pandas|polars|fsspec|ray|matplotlib|albumentations"
TRAINERS = "lightning|accelerate|transformers"
FRAMEWORK = re.compile(rf"^ *(?:from|import) (?:gluonloader\.)?({FRAMEWORKS}|{TRAINERS})\b", re.MULTILINE)

# The program of one page. The blocks are the main module, so that what they define can be pickled.
RUN_BLOCKS = """
import contextlib as _contextlib, io as _io, json as _json, logging as _logging, sys as _sys, warnings as _warnings

_logging.getLogger("gluonloader").addHandler(_logging.NullHandler())  # blocks may end workers, which the log tells

# The imports of MXNet and of older versions of matplotlib use names that other packages have deprecated.
_warnings.filterwarnings("ignore", category=DeprecationWarning, module="mxnet|matplotlib")

_printed = []
_out = _io.StringIO()  # one for all blocks, since a block may have set up logging to it
for _block in _json.load(_sys.stdin):
    _start = len(_out.getvalue())
    with _contextlib.redirect_stdout(_out):
        exec(compile("\\n" * _block["line"] + _block["code"], _block["page"], "exec"))
    _printed.append(_out.getvalue()[_start:])
_json.dump(_printed, _sys.stdout)
"""


def blocks_of(page):
    """The page's Python blocks: line, code, and the output that the page shows (None if it shows none)."""
    text = page.read_text()
    blocks, end = [], 0
    for match in BLOCK.finditer(text):
        kind, body = match.groups()
        if kind == "python":
            line = text.count("\n", 0, match.start(2))
            blocks.append({"page": str(page), "line": line, "code": body, "shown": None})
        elif blocks and not text[end : match.start()].strip():
            blocks[-1]["shown"] = body
        end = match.end()
    return blocks


def can_run(block):
    return all(map(importlib.util.find_spec, FRAMEWORK.findall(block["code"])))


def run_blocks(blocks):
    with tempfile.TemporaryDirectory() as folder:  # for files that they write
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN_BLOCKS],
            input=json.dumps(blocks),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


@pytest.mark.spawn
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_blocks_run_and_print_what_the_page_shows(page):
    blocks = list(filter(can_run, blocks_of(page)))
    done = run_blocks(blocks)
    assert done.returncode == 0, done.stderr
    assert OF_RAY.sub("", done.stderr) == ""
    for block, printed in zip(blocks, json.loads(done.stdout), strict=True):
        shown, printed = block["shown"], OF_RAY.sub("", f"{printed}\n")
        assert printed.strip() == (shown or "").strip(), f"{page.name}, line {block['line'] + 1}"


def test_a_wrong_output_and_a_warning_are_detected(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nimport warnings\nwarnings.warn('w')\n```\n"
    )
    (first, second) = blocks_of(page)
    assert first["shown"] == "2\n"
    assert second["shown"] is None
    assert json.loads(run_blocks([first]).stdout) == ["1\n"]
    assert run_blocks([second]).returncode == 1


def test_the_frameworks_of_a_block_are_found_by_its_imports():
    code = (
        "import numpy\nimport torch.nn\nif True:\n    from gluonloader.mxnet import DataLoader\nimport jaxlib, mxnets\n"
    )
    assert FRAMEWORK.findall(code) == ["torch", "mxnet"]


def errors_page():
    return (ROOT / "docs" / "errors.md").read_text()


def error_classes():
    return [item for item in vars(errors).values() if isinstance(item, type) and item.__module__ == errors.__name__]


def test_the_errors_page_has_a_heading_for_every_exception_class():
    classes = {item.__name__ for item in error_classes() if issubclass(item, BaseException)}
    headings = re.findall(r"^## (\w+)$", errors_page(), re.MULTILINE)
    assert classes == classes.intersection(headings)
    assert [name for name in headings if hasattr(errors, name) and name not in classes] == []


def test_the_errors_page_names_the_builtin_base_of_each_class():
    rows = re.findall(r"^\| \[`(\w+)`\].*?\| `(\w+)` \|", errors_page(), re.MULTILINE)
    derived = {kind.__name__ for kind in error_classes() if is_derived_error(kind)}
    assert {name for name, _ in rows} == derived
    for name, base in rows:
        assert issubclass(getattr(errors, name), getattr(builtins, base))


def is_derived_error(item):
    return isinstance(item, type) and issubclass(item, errors.GluonLoaderError) and item is not errors.GluonLoaderError


WRONG_ARGUMENTS = re.findall(r"^\| `(\w+=[^`]*)` \|", errors_page(), re.MULTILINE)


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_the_constructor_refuses_the_wrong_arguments_of_the_errors_page(arguments):
    call = f"DataLoader(range(8), {arguments})"
    names = re.findall(r"(\w+)=", arguments)
    with pytest.raises(ValueError, match=rf"\b({'|'.join(names)}|batch_size)\b"):
        eval(call, {**vars(gluonloader), **vars(gluonloader.options)})


def test_the_errors_page_has_wrong_arguments():
    assert len(WRONG_ARGUMENTS) > 10


def texts_with_notes():
    """The text of each file that may have or name a NOTE, by its path. Line breaks in it are spaces."""
    paths = [*ROOT.glob("gluonloader/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/*.md")]
    return {path.relative_to(ROOT).as_posix(): re.sub(r"\n *#? *", " ", path.read_text()) for path in paths}


def notes():
    """The name of each NOTE, and the path of the file that has it."""
    texts = texts_with_notes().items()
    return [(note, path) for path, text in texts for note in re.findall(r"NOTE \[([^]]+)\]:", text)]


def test_no_two_notes_have_the_same_name():
    names = [name for name, _ in notes()]
    assert len(names) > 40
    assert sorted(set(names)) == sorted(names)


def test_each_reference_to_a_note_names_its_place():
    place_of, wrong, count = dict(notes()), [], 0
    for path, text in texts_with_notes().items():
        for note, told in re.findall(r"NOTE \[([^]]+)\](?!:)(?: in ([\w/]+(?:\.py|/)))?", text):
            place = f"/{place_of[note]}" if note in place_of else ""
            right = place.endswith(f"/{told}") if told.endswith(".py") else f"/{told}" in place
            count += 1
            wrong += [] if right else [(path, note, told)]
    assert count > 100
    assert wrong == []


def test_each_note_is_broken_by_a_mutation_that_a_test_has_caught(monkeypatch):
    folder = ROOT / "tests" / "mutations"
    monkeypatch.syspath_prepend(folder)
    caught_by = json.loads((folder / "caught_by.json").read_text())
    mutations = [one for name in ("core", "parts", "wire") for one in importlib.import_module(name).MUTATIONS]
    broken = {mutation.note for mutation in mutations if mutation.note and caught_by.get(mutation.name)}
    assert broken == {name for name, _ in notes()}


def test_pages_name_files_that_exist():
    named = {
        (page.name, path)
        for page in PAGES
        for path in re.findall(r"\b(?:benchmarks|examples|gluonloader|tests)/[\w/]+\.py\b", page.read_text())
    }
    assert len(named) > 10
    assert [(page, path) for page, path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_design_page_names_every_room():
    package = ROOT / "gluonloader"
    rooms = {f"{path.name}/" if path.is_dir() else path.name for path in package.iterdir() if path.name[0] != "_"}
    house = (ROOT / "docs" / "design.md").read_text().partition("## The house")[2].partition("## The tests")[0]
    assert rooms - {"py.typed"} <= set(re.findall(r"`([\w./]+)`", house))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_an_example(page):
    assert re.search(r"^```(python|py|sh)$", page.read_text(), re.MULTILINE)


def test_the_pictures_of_the_readme_exist():
    pictures = re.findall(r"(?:src|srcset)=\"([^\"]*)\"", (ROOT / "README.md").read_text())
    assert len(pictures) == 2
    assert [picture for picture in pictures if not (ROOT / picture).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_exist(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_headings_exist(page):
    links = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text())
    assert [
        (file, anchor) for file, anchor in links if anchor not in anchors_of(page.parent / file if file else page)
    ] == []


def anchors_of(page):
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
