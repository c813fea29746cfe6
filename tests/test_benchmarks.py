"""The benchmarks measure what they say: all loaders make the same batches, and what is reported is what was taken."""

import mmap
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import load_mxnet, run_program

import benchmarks.__main__ as command
from benchmarks import balance, comparison, scale, serving, store_loaders, stores, usage
from benchmarks.cases import CASES, Case
from benchmarks.datasets import photos, recycled
from benchmarks.decoding import GluonVision, ImageRecordIter, Pipeline, ScaledPipeline, SPDLDecoder
from benchmarks.harness import Table, in_rounds, text_of
from benchmarks.limits import BareLoop
from benchmarks.measure import UNMEASURED, Result
from benchmarks.page import auto_table, page, section
from benchmarks.processes import memory_of
from benchmarks.programs import Program, in_new_program
from benchmarks.report import time_of
from benchmarks.tables import RESULTS, read_results
from benchmarks.variants import CHOICES, LOADERS, Auto, Serial, Threads

pytestmark = pytest.mark.slow  # no part of the library

BATCHES, BATCH_SIZE = 3, 4
SVG = "{http://www.w3.org/2000/svg}"
LIGHT_TEXT, DARK_TEXT = "#1f2328", "#d7dae0"
NEW = ["columns", "columns-f32", "jpeg", "tokens"]
OWN_DECODING = [
    loader.name for loader in (Pipeline(), ScaledPipeline(), GluonVision(), ImageRecordIter(), SPDLDecoder())
]
PAIRS = [
    (loader, name)
    for name in NEW
    for loader in {loader.name: loader for loader in (*LOADERS, *CHOICES)}.values()
    if loader.name in CASES[name].contenders or loader in CHOICES
    if loader.name not in ("bare loop", *OWN_DECODING)
]


def small(name, **changes):
    case = replace(CASES[name], batches=BATCHES, batch_size=BATCH_SIZE, **changes)
    if absence := case.absence():
        pytest.skip(absence)
    return case


def leaves(batch):
    if isinstance(batch, (tuple, list)):
        return [leaf for field in batch for leaf in leaves(field)]
    return [np.array(batch.asnumpy() if hasattr(batch, "asnumpy") else batch)]


def epoch(loader, case, dataset):
    with loader.open(case, dataset, loader.workers(case, 2)) as run:
        batches = [leaves(batch) for batch in islice(run.batches, case.batches)]
        run.epoch()  # to its end: not all of them can be left before
        return batches


@pytest.mark.filterwarnings("ignore")  # of the others
@pytest.mark.parametrize(("loader", "name"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_batches_are_those_of_the_bare_loop(loader, name):
    case = small(name, shuffled=False)
    if absence := loader.absence():
        pytest.skip(absence)
    dataset = case.dataset()
    expected = epoch(BareLoop(), case, dataset)
    found = epoch(loader, case, dataset)
    assert len(found) == len(expected) == BATCHES
    for mine, its in zip(found, expected):
        assert [leaf.shape for leaf in mine] == [leaf.shape for leaf in its]
        assert [leaf.dtype for leaf in mine] == [leaf.dtype for leaf in its] or loader.name in ("MXNet", "NDArrays out")
        for leaf, other in zip(mine, its):
            np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("name", ["columns", "tokens"])
def test_a_shuffled_bare_loop_gives_each_sample_once(name):
    case = small(name, shuffled=True)
    dataset = case.dataset()
    samples = [np.asarray(dataset[i][0] if name == "columns" else dataset[i]).tobytes() for i in range(len(dataset))]
    found = [row.tobytes() for batch in epoch(BareLoop(), case, dataset) for row in batch[0]]
    assert sorted(found) == sorted(samples)
    assert found != samples


def test_jpegs_become_normalised_images():
    image, label = small("jpeg").dataset()[3]
    assert (image.shape, image.dtype, label) == ((3, 224, 224), np.float32, 3)
    assert image.std() > 0.3
    assert abs(image.mean()) < 3


@pytest.mark.filterwarnings("ignore")  # of the others
@pytest.mark.parametrize("name", OWN_DECODING)
def test_loaders_with_their_own_decoders_make_batches_of_the_same_kind(name):
    loader = next(loader for loader in LOADERS if loader.name == name)
    case = small("jpeg")
    if absence := loader.absence():
        pytest.skip(absence)
    for images, labels in epoch(loader, case, case.dataset()):
        assert (images.shape, images.dtype, labels.shape) == ((BATCH_SIZE, 3, 224, 224), np.float32, (BATCH_SIZE,))
        assert images.std() > 0.3
        assert abs(images.mean()) < 3


class Hungry:
    """Each sample is new memory of 8 MB."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        new = np.frombuffer(mmap.mmap(-1, 8_000_000))  # from the system, and goes back there
        new[:] = index
        return new


def memory_of_this_test():
    """Without shared memory and files that other programs use: their shares change when another program ends."""
    return memory_of("Pss_Anon", "Pss_Shmem")


def test_usage_counts_what_workers_take():
    short = {"counted_s": 0.1, "sampled_s": 0.1, "memory": memory_of_this_test}
    case = Case("hungry", "", lambda length: Hungry(), 2, 2)
    in_processes = usage.usage_of(case, LOADERS[0], 1, **short)
    assert in_processes.peak > 16e6
    assert in_processes.worker_faults > 0
    assert in_processes.tree_s >= in_processes.parent_s > 0
    assert usage.usage_of(case, Serial(), 1, **short).worker_faults == 0


TIMES = {
    "tiny": [Result("gluonloader", workers=2, times=[1.0, 2.0]), Result("torch", workers=2, times=[10.0, 20.0])],
    "jpeg": [
        Result("auto", workers=2, times=[1.0, 1.0]),
        Result("torch & co", missing="not <there>"),
        Result("SPDL", missing=UNMEASURED),
        Result("bare loop", times=[1.5, 1.5]),
    ],
}
USAGE = usage.Usage(0.001, 0.002, 0.0, 1.5, 5_000_000)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of older versions of matplotlib
def test_the_picture_has_a_bar_for_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import plot

    plot.main(picture=tmp_path / "speed.svg")
    times = [bar.time for bar in plot.bars_of(RESULTS.read_text())]
    assert len(times) == 5
    for theme, name in ((LIGHT_TEXT, "speed"), (DARK_TEXT, "speed-dark")):
        picture = (tmp_path / f"{name}.svg").read_text()
        texts = ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
        assert all(any(text.startswith(time_of(time)) for text in texts) for time in times)
        assert theme in picture


def test_the_page_has_a_row_for_each_time_and_a_note_for_what_is_missing():
    text = page(TIMES, {"jpeg": {"auto": USAGE}}, {}, "2 cores")
    assert "| torch | 15000 ms | 10000 ms | 10.00 |" in text
    assert "| auto | 1000 ms | 1000 ms | 1.00 | 75 % | 1.00 ms | 2.00 ms | 0.0 | 1.5 | 5 |" in text
    assert "torch & co: not <there>" in text
    assert "SPDL" not in text


def test_a_section_has_a_row_for_each_loader():
    *_, limit, _, note = section(CASES["jpeg"], TIMES["jpeg"], {"auto": USAGE}).splitlines()
    assert limit == "| bare loop | 1500 ms | 1500 ms | 1.50 | 50 % | - | - | - | - | - |"
    assert note == "- torch & co: not <there>"
    assert "| torch | 15000 ms | 10000 ms | 10.00 |" in section(CASES["tiny"], TIMES["tiny"], {})


def test_auto_has_the_workers_that_were_asked_for():
    case = Case("tiny", "1 of 16 float32", recycled(lambda: [np.zeros(16)]), 1, 8)
    with Auto().open(case, case.dataset(), 3) as run:
        next(iter(run.batches))
        assert run.batches.stats().num_workers == 3


def test_the_limit_counts_one_core_for_each_worker():
    auto, *_, bare = TIMES["jpeg"]
    assert auto.share_of(bare, auto) == 0.75
    assert bare.share_of(bare, auto) == 0.5


def test_auto_is_compared_with_the_best_fixed_choice():
    results = [Result(name, times=[time]) for name, time in (("serial", 3.0), ("threads", 1.0), ("auto", 1.1))]
    missing = [Result("serial", missing="without cv2"), Result("auto", missing="without cv2")]
    *_, row = auto_table({"tiny": results, "jpeg": missing}).splitlines()
    assert row == "| tiny | 3000 ms | 1000 ms | 1100 ms | threads | 1.10 |"


def test_a_run_writes_a_page(monkeypatch, tmp_path, capsys):
    case = Case("tiny", "1 of 16 float32", recycled(lambda: [np.zeros(16)]), 1, 8, contenders=("serial", "threads"))
    monkeypatch.setitem(CASES, "tiny", replace(case, base="serial"))
    monkeypatch.setattr(comparison, "LOADERS", (Serial(), Threads()))
    monkeypatch.setattr("gluonloader.mxnet.patch_numpy", lambda: None)  # inherited by the programs
    command.main(["tiny", "--rounds", "2", "--auto", "--markdown", str(tmp_path / "R.md")])
    assert "auto / best" in capsys.readouterr().out
    text = (tmp_path / "R.md").read_text()
    assert "| threads |" in text
    assert "python -m benchmarks comparison tiny" in text


def test_a_comparison_with_another_commit_has_a_row_for_each_loader():
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        pytest.skip("no repository")
    command = [sys.executable, "-m", "benchmarks", "--against", "HEAD", "--rounds", "2", "columns"]
    printed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=120).stdout
    heading, _, row = [line for line in printed.splitlines() if line.startswith("|")]
    assert heading == "|  | before | this tree | ratio |"
    _, loader, _, _, ratio, _ = row.split("|")
    assert loader.strip() == "gluonloader"
    assert float(ratio.split()[0]) > 0


def test_rows_are_measured_in_turn_and_the_first_rounds_do_not_count():
    order = []

    def row(name):
        return lambda: order.append(name) or {"turn": len(order)}

    found = in_rounds({name: row(name) for name in "ab"}, 2, warm_up=1)
    assert "".join(order) == "abbaab"
    assert found == {"a": [{"turn": 4}, {"turn": 5}], "b": [{"turn": 3}, {"turn": 6}]}


def test_a_table_shows_medians_with_the_least_and_the_most_and_what_is_missing():
    fast, slow = iter([1.0, 2.0, 4.0]), iter([2.0, 8.0, 4.0])
    rows = {
        "fast": lambda: {"time": next(fast), "size": 7},
        "slow": lambda: {"time": next(slow), "size": 9},
        "late": lambda: {},
        "other": "not installed",
    }
    table = Table("What", rows, {"time": "{:.0f} s".format, "size": "{} B".format}, base="fast")
    assert text_of(table, 3).splitlines() == [
        "What",
        "",
        "|  | time | size | relative to fast |",
        "| --- | ---: | ---: | ---: |",
        "| fast | 2 s (1 s to 4 s) | 7 B | 1.00 |",
        "| slow | 4 s (2 s to 8 s) | 9 B | 2.00 (1.00 to 4.00) |",
        "| late | - | - | - |",
        "",
        "- other: not installed",
    ]


def counting(path):
    try:
        yield from range(3)
    finally:
        path.write_text("closed")


@pytest.mark.parametrize("pauses", [False, True])
def test_a_program_does_a_step_each_time_and_closes_its_generator(tmp_path, pauses):
    with Program(counting, tmp_path / "file", pauses=pauses) as program:
        assert program.answer() == 0
        assert program.step() == 1
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_text() == "closed"


@pytest.mark.spawn
def test_a_new_program_returns_a_result_and_one_that_fails_is_an_error(capfd):
    assert in_new_program(divmod, 7, 2) == (3, 1)
    with pytest.raises(RuntimeError, match="a program has ended"):
        in_new_program(divmod, 7, 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def rows_of(printed):
    """The cells of the rows of all tables that were printed, without their headings."""
    lines = printed.splitlines()
    tables = [line for line in lines if line.startswith("|")]
    headings = {number for number, line in enumerate(tables[1:]) if line.startswith("| --- |")}
    rows = [line.strip("| ").split(" | ") for number, line in enumerate(tables) if number not in headings]
    return [row for row in rows if row[0] != "---"]


def test_ndarrays_have_a_table_for_each_case(capsys):
    if load_mxnet() is None:
        pytest.skip("needs MXNet")
    command.main(["ndarrays", "16 x (8,)", "64 x ToTensor and Normalize, int", "--workers", "1", "--rounds", "1"])
    rows = rows_of(capsys.readouterr().out)
    names = [f"{mode}, {workers} workers" for workers in (0, 1) for mode in ("mx.nd", "mx.np")]
    assert [row[0] for row in rows] == names * 2
    assert all(len(row) == 4 and float(row[3]) > 0 for row in rows)


def test_the_balance_of_slow_samples_shows_time_and_shared_memory(monkeypatch, capsys):
    settings = {"small": {"window": 1}, "threads": {"window": 2, "concurrency": 2}}
    monkeypatch.setattr(balance, "SETTINGS", settings)
    monkeypatch.setattr(balance, "BATCHES", 10)
    command.main(["balance", "--rounds", "1", "--batch-size", "50", "--milliseconds", "1"])
    rows = rows_of(capsys.readouterr().out)
    assert [row[0] for row in rows] == list(settings)
    assert all(float(ratio) > 0 for row in rows for ratio in row[1:5])


SMALL_SCALE = scale.Scale((10**6, 10**9), ranks=(1, 4), elastic=(40, 31, 1), once=2000, shards=20, rounds=1)


def test_the_tables_of_scale_have_their_rows_and_the_checks_pass(monkeypatch, capsys):
    monkeypatch.setattr(scale, "QUICK", SMALL_SCALE)
    command.main(["scale", "--quick", "--rounds", "1"])
    printed = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    assert rows[0] == ["Map-style dataset", "10^6 samples", "10^9 samples"]
    assert ["10^9 samples", "1 rank", "4 ranks"] in rows
    assert {len(row) for row in rows} == {3}
    names = [row[0] for row in rows]
    assert len(names) == len({*names}) + 1, "only the lines below the headings are equal"
    for name in ("state in the middle", "first index", "each index", "memory", "merge_states", "merged state"):
        assert any(name in row for row in names)
    assert "40 ranks, then 31 ranks, then 1 rank read 2,000 indices" in printed
    assert "20 ranks, then 15 ranks, then 1 rank read 2,100 samples" in printed


@pytest.mark.parametrize("lost", [-1, 1])
def test_the_checks_of_scale_notice_a_wrong_position(monkeypatch, lost):
    state = scale.OrderPass.state

    def wrong(self, number):
        found = state(self, number)
        return {**found, "offset": found["offset"] + lost}

    monkeypatch.setattr(scale.OrderPass, "state", wrong)
    with pytest.raises(AssertionError, match="did not come once"):
        list(scale.checks(SMALL_SCALE))


STATIONS = """
from benchmarks.cases import CASES
from benchmarks.stations import trace
main, worker = (
    {(name.split(":")[0], name.split(".")[-1]): count for name, count in calls.items()}
    for calls, instructions in trace(CASES["small"]).values()
    if all(instructions[name] > count for name, count in calls.items())
)
assert main["iterator", "__next__"] == worker["work.maker", "make"] == 1
assert main["executors.base", "__init__"] == worker["work.task", "__init__"] == 1  # of dataclasses
assert ("work.maker", "make") not in main
assert "work.maker: BatchMaker.make" in trace(CASES["ragged"])["worker"][0]  # padded by a function of the user
"""


@pytest.mark.spawn
def test_the_functions_that_run_for_a_small_batch_are_counted_in_both_processes():
    done = run_program(STATIONS)  # where no framework is loaded
    assert done.returncode == 0, done.stderr


def test_the_image_pipeline_is_compared_with_a_bare_loop(capsys):
    for needed in ("cv2", "simplejpeg", "sklearn"):
        pytest.importorskip(needed)
    from benchmarks import images

    dataset = photos(96, 72, 64)(64)
    with ExitStack() as stack:
        tables = images.faults("96x72", dataset, 1), images.speed("96x72", dataset, 2, stack)
        printed = "\n".join(text_of(table, 1) for table in (*tables, images.steps("96x72", dataset.files[0])))
    rows = rows_of(printed)
    loaders = ["processes", "threads", "processes, scaled_decode"]
    assert [row[0] for row in rows[:6]] == ["ImagePipeline", "OpenCV", "bare loop", *loaders]
    assert {"decode by simplejpeg", "decode by OpenCV", "resize, area"} < {row[0] for row in rows}
    assert float(rows[2][1].replace(",", "")) > 0


def test_the_benchmark_of_ranks_that_share_their_workers(capsys):
    command.main(["sharing", "--samples", "3000", "--rounds", "1"])
    rows = rows_of(capsys.readouterr().out)
    assert len(rows) == 4
    assert rows[0][0] == "1 rank, 2 workers"
    assert all(float(row[-1]) > 0 for row in rows)


@pytest.mark.spawn
def test_the_benchmark_of_programs_that_share_a_loader(monkeypatch, capsys):
    for needed in ("cv2", "sklearn"):
        pytest.importorskip(needed)
    monkeypatch.setattr(serving, "JOBS", {name: job for name, job in serving.JOBS.items() if name.startswith("1 ")})
    command.main(["serving", "--batches", "4", "--rounds", "1"])
    rows = rows_of(capsys.readouterr().out)
    assert ["1 program, own loader", "1.00"] == [rows[0][0], rows[0][-1]]
    assert "attached" in [row[0] for row in rows]


@pytest.mark.spawn
def test_the_benchmark_of_object_stores(monkeypatch, tmp_path):
    for needed in ("obstore", "torch"):
        pytest.importorskip(needed)
    for name, few in (("_IMAGES", 8), ("_FILES", 200), ("_TOKENS", 500_000), ("_WARM_ROUNDS", 1)):
        monkeypatch.setattr(stores, name, few)
    command.main(["stores", "gluonloader", "--samples", "14000", "--markdown", str(tmp_path / "R.md")])
    results = read_results((tmp_path / "R.md").read_text())
    found = results["store"]["gluonloader"]
    blocks = 143.36e6 / store_loaders.CHUNK
    assert blocks <= float(found["MB, epoch 1"]) * 1e6 / store_loaders.CHUNK
    assert float(found["requests per sample, epoch 1"]) * 14_000 >= blocks
    assert float(found["CPU s per 10^6, epoch 1"]) > 0
    assert 4 < float(found["MB on disk"]) <= 72
    assert {name.rpartition(", ")[2] for name in results["warm"]} == {"0 workers", "2 workers"}


@pytest.mark.parametrize("damage", ["lost", "twice", "changed"])
def test_a_loader_that_loses_or_damages_a_sample_is_not_measured(damage):
    batch = np.stack(list(store_loaders.samples(8)))
    others = np.stack([*batch[1:], batch[1]])
    batches = {"lost": [batch[1:]], "twice": [others], "changed": [np.where(batch == batch[3, 5], 0, batch)]}
    stores._read([batch[:4], batch[4:]], 0.0, 8)
    with pytest.raises(AssertionError, match="have come"):
        stores._read(batches[damage], 0.0, 8)
