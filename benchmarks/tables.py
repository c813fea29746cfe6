"""Writes the tables of README.md, docs/speed.md and docs/stores.md from the results: `python -m benchmarks.tables`.

A table stands between two comments, <!-- results: NAME --> and <!-- end of results -->. A test compares the pages with
benchmarks/RESULTS.md and benchmarks/STORES.md, so that no figure is changed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from .cases import CASES
from .report import markdown

Cells = Mapping[str, str]  # of a row of the results, by column
Results = Mapping[str, Mapping[str, Cells]]  # the rows of each case, by loader
Versions = Mapping[str, str]  # by package

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "benchmarks" / "RESULTS.md"
STORES: Final = ROOT / "benchmarks" / "STORES.md"
# Each page with tables, and the page of results that they show:
PAGES: Final = {ROOT / "README.md": RESULTS, ROOT / "docs" / "speed.md": RESULTS, ROOT / "docs" / "stores.md": STORES}

PEERS: Final = {"torch": "torch", "MXNet": "mxnet", "Grain": "grain", "SPDL": "spdl"}  # and their packages
OVERVIEW: Final = {
    "small": "32 rows of 16 float32 and a label",
    "tokens": "64 windows of 1024 int32 from a file",
    "big": "128 images of 3 x 224 x 224 float32",
    "jpeg": "32 JPEGs, decoded and augmented",
}
_CASES: Final = ("small", "big", "tokens", "inproc")
_TENSORS: Final = ("dicts", "images")
_PHOTOS: Final = {
    "gluonloader": "gluonloader, a dataset that uses OpenCV, processes",
    "auto": 'gluonloader, the same dataset, `executor="auto"` (threads)',
    "ImagePipeline": "gluonloader, `vision.ImagePipeline`, processes",
    "torch": "torch, the dataset that uses OpenCV",
    "MXNet": "MXNet, the dataset that uses OpenCV",
    "Gluon vision": "MXNet, `ImageRecordDataset` with Gluon's transforms",
    "Grain threads": "Grain, the dataset that uses OpenCV, threads",
    "SPDL": "SPDL, the dataset that uses OpenCV, threads",
}
_STORE_LOADERS: Final = {
    "gluonloader": ("gluonloader, `NodeCache`", ""),
    "MosaicML Streaming": ("MosaicML Streaming", "streaming"),
    "LitData": ("LitData", "litdata"),
    "WebDataset": ("WebDataset", "webdataset"),
    "torch, boto3": ("torch, a request by boto3 for each sample", ""),
}
_IN_BOTH_EPOCHS: Final = {
    "samples/s": "samples/s", "first batch": "first batch", "CPU s per 10^6": "CPU s per 10<sup>6</sup> samples",
    "requests per sample": "requests per sample", "MB": "MB fetched",
}  # fmt: skip
_PHOTO_CASES: Final = {"jpeg": "500 x 375", "jpeg-large": "2000 x 1333"}


def read_results(page: str) -> dict[str, dict[str, Cells]]:
    """Returns the rows of each case, from the text of a page that `python -m benchmarks --markdown` wrote."""
    cases: dict[str, dict[str, Cells]] = {}
    for name, section in re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        lines = [line for line in section.splitlines() if line.startswith("|")]
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:1] + lines[2:]]
        cases[name] = {row[0]: dict(zip(table[0][1:], row[1:], strict=True)) for row in table[1:]}
    return cases


def seconds_of(text: str) -> float:
    """Returns the seconds of a time in the results."""
    number, unit = text.split()
    return float(number) * {"us": 1e-6, "ms": 1e-3}[unit]


def versions_of(page: str) -> dict[str, str]:
    """Returns the versions of the packages that were measured; 2.13.0 is written as 2.13."""
    return {name: number.removesuffix(".0") for name, number in re.findall(r"\b(\w+) (\d+(?:\.\d+)+)", page)}


def overview(results: Results, versions: Versions) -> str:
    """The table of README.md."""
    columns = [("gluonloader", "gluonloader"), *_peers(versions)]
    return _times("Time per batch, 2 workers on 2 cores", columns, OVERVIEW, results, of="")


def cases(results: Results, versions: Versions) -> str:
    """The table of all loaders, with the ratios of the others in brackets."""
    columns = [("gluonloader", "gluonloader"), ('`executor="auto"`', "auto"), *_peers(versions)]
    return _times("Case", columns, _named(_CASES), results, of="torch MXNet Grain SPDL")


def tensors(results: Results, versions: Versions) -> str:
    """The table of samples that are tensors, with and without workers."""
    columns = [("gluonloader", "gluonloader"), ("one changed import", "gluonloader.torch")]
    columns += [(heading, loader) for heading, loader in _peers(versions) if loader in ("torch", "SPDL")]
    rows = _named([f"tensor-{case}{suffix}" for case in _TENSORS for suffix in ("", "-serial")])
    return _times("Samples that are tensors", columns, rows, results, of="gluonloader.torch torch SPDL")


def _named(names: Sequence[str]) -> dict[str, str]:
    return {name: f"*{name}*: {CASES[name].what}" for name in names}


def photos(results: Results, versions: Versions) -> str:
    """The table of JPEGs, in images per second."""
    rows = []
    for loader, what in _PHOTOS.items():
        cells = [_images_per_s(case, results[case].get(loader, {})) for case in _PHOTO_CASES]
        if set(cells) != {"-"}:
            rows.append([what, *cells])
    return markdown(["Images per second on 2 cores", *_PHOTO_CASES.values()], rows)


def store(results: Results, versions: Versions, name: str = "store") -> str:
    """The table of loaders that read from an object store; most cells have a figure for each of two epochs."""
    heading = ["Epoch 1 / epoch 2", *_IN_BOTH_EPOCHS.values(), "most MB on disk", "chunks in a batch"]
    rows = []
    for loader, (what, package) in _STORE_LOADERS.items():
        if cells := {column: _median(cell) for column, cell in results[name].get(loader, {}).items()}:
            row = [f"{what} {versions[package]}" if package else what]
            row += [f"{cells[f'{column}, epoch 1']} / {cells[f'{column}, epoch 2']}" for column in _IN_BOTH_EPOCHS]
            rows.append([*row, cells["MB on disk"], f"{cells['chunks in a batch']} ({cells['in a full shuffle']})"])
    return markdown(heading, rows)


def warm(results: Results, versions: Versions) -> str:
    """The table of a warm cache beside local files."""
    columns = {"local files": "local", "warm cache": "cache", "cache / local": "cache / local"}
    rows = [[name, *(_median(cells[column]) for column in columns.values())] for name, cells in results["warm"].items()]
    return markdown(["Samples per second", *columns], rows)


def _median(cell: str) -> str:
    """A cell without the least and the most, which are in parentheses."""
    return cell.partition(" (")[0]


TABLES: Final[Mapping[str, Callable[[Results, Versions], str]]] = {
    "overview": overview, "cases": cases, "tensors": tensors, "photos": photos, "store": store,
    "large": partial(store, name="large"), "warm": warm,
}  # fmt: skip


def _peers(versions: Versions) -> list[tuple[str, str]]:
    return [(f"{name} {versions[package]}", name) for name, package in PEERS.items()]


def _times(
    title: str, columns: Sequence[tuple[str, str]], rows: Mapping[str, str], results: Results, *, of: str
) -> str:
    """Returns a table of times.

    Args:
        title: heading of the first column.
        columns: heading and loader of the other columns.
        rows: what is written for each case.
        results: the results.
        of: the loaders whose ratios are written in brackets.
    """

    def cell(case: str, loader: str) -> str:
        cells = results[case].get(loader, {})
        ratio = f" ({float(cells['ratio']):.1f})" if cells.get("ratio") and loader in of.split() else ""
        return (cells.get("per batch") or "-") + ratio

    heading = [title, *(heading for heading, _ in columns)]
    return markdown(heading, [[what, *(cell(case, loader) for _, loader in columns)] for case, what in rows.items()])


def _images_per_s(case: str, cells: Cells) -> str:
    if not cells.get("ratio"):
        return "-"
    return f"{CASES[case].batch_size / seconds_of(cells['per batch']):,.0f} ({cells['ratio']})"


def updated(text: str, page_of_results: str) -> str:
    """Returns the text of a page, with the tables of these results."""
    results, versions = read_results(page_of_results), versions_of(page_of_results)

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{TABLES[match[2]](results, versions)}\n\n{match[3]}"

    marked = r"(<!-- results: (\w+) -->).*?(<!-- end of results -->)"
    return re.sub(marked, table, text, flags=re.DOTALL)


def main() -> None:
    for path, results in PAGES.items():
        path.write_text(updated(path.read_text(), results.read_text()))


if __name__ == "__main__":
    main()
