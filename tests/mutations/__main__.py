"""Puts one fault after another into a copy of the package, and runs the tests of the part that has the fault.

    python tests/mutations              all mutations; about half an hour on 2 cores
    python tests/mutations loan seeds   those whose names, or the names of their NOTEs, contain one of these words
    python tests/mutations --list       their names
    python tests/mutations --save       all, and writes down in caught_by.json which test has caught each

It is no part of CI. Run it before and after tests are removed or merged: what was caught before must be caught after.
First it runs the one test that caught the mutation the last time. Only if that test passes or is gone, it runs all
tests of the part, which takes up to ten minutes for a mutation.

Each NOTE of the package is broken by at least one mutation; tests/test_docs.py checks that.

The environment must be able to run the tests: `nox -s modern --install-only` makes one. Only the mutation of
NOTE [loops and try] needs another environment, with Python 3.13 or newer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import core
import parts
import wire
from mutation import Mutation

MUTATIONS = [*core.MUTATIONS, *parts.MUTATIONS, *wire.MUTATIONS]
ROOT = Path(__file__).parents[2]
LIMIT_S = 600  # a mutated loader may hang; then the mutation counts as caught
NO_TESTS = 5  # the exit status of pytest if it has selected no test
CAUGHT_BY = Path(__file__).parent / "caught_by.json"  # the name of a mutation, and the test that caught it
QUICK = "not slow and not spawn and not kill"
EXECUTORS = ("tests/executors", "tests/test_live.py", "tests/test_loader.py", "tests/test_iterable.py")
STATES = (
    *("tests/test_resume.py", "tests/test_loader_states.py", "tests/test_user_states.py", "tests/test_replay.py"),
    *("tests/test_ranks.py", "tests/test_ranks_of_orders.py", "tests/test_upcoming.py"),
    "tests/test_position_machine.py",
)
# The tests of each folder or file, the fastest first: those that have its name, and those of what relies on it.
TESTS = {
    "wire": (
        "tests/wire",
        "tests/serving/test_attaching.py",
        "tests/executors/test_shared_workers.py",
        "tests/serving",
    ),
    "executors/process/lane_end.py": ("tests/executors/test_shared_workers.py",),
    "executors/shared/program.py": ("tests/executors/test_program.py",),
    "ranks.py": ("tests/executors/test_program.py", "tests/test_ranks.py"),
    "executors/shared": (
        "tests/executors/test_fingerprint.py",
        "tests/executors/test_shared_workers.py",
        "tests/test_shared_random.py",
        "tests/test_iterable.py",
    ),
    "errors.py": EXECUTORS,
    "executors": EXECUTORS,
    "executors/serial.py": ("tests/randomness/test_spared.py", "tests/executors/test_left_streams.py", *EXECUTORS),
    "forks.py": ("tests/executors/test_closing.py", "tests/memory"),
    "frameworks": ("tests/frameworks", "tests/gluon"),
    "position": ("tests/position", "tests/loading", *STATES, "tests/test_on_error.py", *EXECUTORS[:2]),
    "loading": (
        "tests/loading",
        "tests/position",
        "tests/test_loader.py",
        *STATES,
        *EXECUTORS[:2],
        "tests/test_on_error.py",
    ),
    "memory": ("tests/memory", *EXECUTORS, "tests/frameworks"),
    "randomness": ("tests/randomness", "tests/test_held_generators.py", "tests/test_loader.py", *EXECUTORS),
    "stores": (
        "tests/stores/test_folder.py",
        "tests/stores/test_requests.py",
        "tests/stores/test_cache_programs.py",
        "tests/stores",
    ),
    "sampler": (
        "tests/sampler",
        "tests/loading/test_sampler_epochs.py",
        "tests/test_last_batch.py",
        "tests/text",
        *STATES,
        "tests/executors/test_interrupts.py",
    ),
    "work": ("tests/work", "tests/test_on_error.py", "tests/test_iterable.py", *EXECUTORS),
    "batchify": ("tests/batchify", "tests/golden", "tests/test_loader.py", "tests/text"),
    "bridges": ("tests/bridges",),
    "guests": ("tests/guests", "tests/dataset", "tests/work", "tests/test_iterable.py"),
    "guests/obstore.py": ("tests/stores",),
    "dataset": ("tests/dataset", "tests/test_iterable.py", "tests/text", "tests/executors/test_faults.py"),
    "mxnet": ("tests/gluon", "tests/frameworks"),
    "records": ("tests/records", "tests/vision"),
    "serving": ("tests/serving",),
    "state.py": STATES,
    "tools": ("tests/tools",),
    "torch": ("tests/pytorch",),
    "tables": ("tests/tables", "tests/dataset", "tests/executors/test_faults.py"),
    "text": ("tests/text", "tests/golden"),
    "tree.py": ("tests/test_tree.py", "tests/batchify", "tests/memory"),
    "vision": ("tests/vision",),
}


@dataclass(frozen=True)
class Verdict:
    """Whether the tests noticed a mutation."""

    caught: bool
    how: str  # the first test that failed


def copy_of(root: Path, folder: Path) -> Path:
    """Copies all files that git knows to a folder; returns the folder."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name)
    return folder


def run_tests(mutation: Mutation, folder: Path, last: str | None) -> Verdict:
    """Runs the test that was the last to catch a mutation, then all of its part, the quick ones first.

    It ends with the first failure.
    """
    if last and (verdict := run_pytest(folder, ["-n", "0", last])).caught:
        return verdict
    part = max((part for part in TESTS if mutation.file.startswith(part)), key=len)
    tests = [test for test in TESTS[part] if (folder / test).exists()]
    for marked in (QUICK, f"not ({QUICK})"):
        for chosen in filter(None, (tests[:1], tests[1:])):
            verdict = run_pytest(folder, ["-m", marked, *chosen])
            if verdict.caught:
                return verdict
    return verdict


def run_pytest(folder: Path, arguments: list[str]) -> Verdict:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutations"]
    command += ["-n", str(os.cpu_count() or 1)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Verdict(True, f"the tests did not end within {LIMIT_S} seconds")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode in (0, NO_TESTS) or "ERROR: not found: " in done.stderr:
        return Verdict(False, "all tests passed")
    if done.returncode != 1 and not failed:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return Verdict(True, failed[0].split(" - ")[0].partition(" ")[2] if failed else "a test failed")


def is_meant(mutation: Mutation, words: list[str]) -> bool:
    return any(word in text for word in words for text in (mutation.name, mutation.note))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mutations whose names or NOTEs contain one of these words")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    parser.add_argument("--save", action="store_true", help="write down which test has caught each mutation")
    options = parser.parse_args()
    caught_by = json.loads(CAUGHT_BY.read_text())
    chosen = [one for one in MUTATIONS if not options.words or is_meant(one, options.words)]
    missed = []
    for number, mutation in enumerate(chosen, 1):
        if options.list:
            print(f"{mutation.file}: {mutation.name}" + (f" [{mutation.note}]" if mutation.note else ""))
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutation-") as name:
            folder = copy_of(ROOT, Path(name))
            mutation.apply(folder / "gluonloader")
            verdict = run_tests(mutation, folder, caught_by.get(mutation.name))
        if verdict.caught and "::" in verdict.how:
            caught_by[mutation.name] = verdict.how
        if options.save:
            tests = {mutation.name: caught_by.get(mutation.name) for mutation in MUTATIONS}
            CAUGHT_BY.write_text(json.dumps(tests, indent=1) + "\n")
        missed += [] if verdict.caught else [mutation.name]
        result = "caught" if verdict.caught else "MISSED"
        took = time.monotonic() - start
        print(f"{number:2} {result} {took:4.0f} s  {mutation.file}: {mutation.name}: {verdict.how}", flush=True)
    if not options.list:
        print(f"{len(chosen) - len(missed)} of {len(chosen)} mutations were caught")
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
