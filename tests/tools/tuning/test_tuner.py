"""`tune` as a whole: the result, its text and its plot.

A budget is as short as possible where a test spends all of it, and tried again with more time, since the first trial
may have no result on a busy machine. It is long where the first trial is the last one.
"""

import json
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
from conftest import load_or_skip

from gluonloader import DataLoader, tune
from gluonloader.errors import MissingExtraError
from gluonloader.types import Trial, Tuning

ROWS = np.zeros((1000, 64), np.float32)
TRIALS = (
    Trial({"num_workers": 2}, 2000.0, 1900.0, 2100.0, 0.05, 100, 4096, 10**6, 0.1, 3.0),
    Trial({"num_workers": 0}, 1990.0, 1800.0, 2000.0, 0.01, 100, 0, 0, 0.1, 3.0),
    Trial({"num_workers": 2, "executor": "thread"}, error="ValueError: no", took_s=0.1),
)
TUNING = Tuning(TRIALS[1], TRIALS, 6.1)


def in_time(tune_for, budget_s):
    """Returns the result of a function of a budget, with a budget in which a trial yields batches."""
    for times in (1, 4, 16):
        try:
            return tune_for(times * budget_s)
        except ValueError as late:
            if "no result after" not in str(late):
                raise
    raise AssertionError("no trial has a result")


@pytest.mark.slow
def test_the_result():
    trials = []

    def tune_for(budget_s):
        trials.clear()
        return tune(lambda **options: DataLoader(ROWS, 10, **options), budget_s, "2MB", on_trial=trials.append)

    tuning = in_time(tune_for, 3)
    assert tuning.best in tuning.trials
    for runs in (False, True):
        speeds = [trial.samples_per_s for trial in tuning.trials if (trial.runs > 1) == runs]
        assert speeds == sorted(speeds, reverse=True)
    assert all(trial.error or trial.low <= trial.samples_per_s <= trial.high for trial in tuning.trials)
    assert sum(trial.took_s for trial in trials) == pytest.approx(tuning.took_s)
    with DataLoader(ROWS, 10, **tuning.best.arguments) as loader:
        assert sum(1 for _ in loader) == 100  # without keeping the batches, because of the memory limit
    assert eval(f"dict({tuning.line})") == tuning.best.arguments
    assert all(trial.shared_nbytes <= 2 << 20 for trial in tuning.trials)
    for trial in tuning.trials:
        is_process = trial.arguments["num_workers"] and "executor" not in trial.arguments
        assert trial.arguments.get("memory_limit") == ("2MB" if is_process else None)
    assert json.loads(json.dumps(asdict(tuning)))["trials"]


def test_the_table():
    lines = str(TUNING).splitlines()
    assert lines[0].split() == "samples/s from to runs first batch shared memory arguments".split()
    assert lines[1].split() == "2,000 1,900 2,100 1 50 ms 4 kB num_workers=2".split()
    assert lines[2].split() == "* 1,990 1,800 2,000 1 10 ms - num_workers=0".split()
    assert lines[-3:] == ["num_workers=2, executor='thread': ValueError: no", "", "Best, found in 6.1 s: num_workers=0"]


def test_a_busy_machine_and_threads_are_mentioned():
    threads = Trial({"num_workers": 2, "executor": "thread"}, 3000.0, 2900.0, 3100.0)
    text = str(Tuning(threads, (threads,), 6.1, load=3.25))
    assert "several threads read samples at the same time" in text
    assert "The load average of this machine was 3.2 before the first trial" in text


def test_waiting_for_a_core_is_mentioned():
    waited = replace(TRIALS[0], waiting_for_core=0.42)
    text = "With this, workers waited for a core 42 % of the time: your program or other programs used the cores, too."
    assert text in str(Tuning(waited, (waited,), 6.1))
    assert "for a core" not in str(TUNING)
    assert "for a core" not in str(Tuning(TRIALS[0], (TRIALS[0], waited), 6.1))  # it is not the best one


def test_a_plot(tmp_path):
    load_or_skip("matplotlib")
    TUNING.plot(tmp_path / "tuning.png")
    TUNING.plot(tmp_path / "tuning.svg")
    assert (tmp_path / "tuning.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "tuning.svg").read_text()


def test_a_plot_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[plot\]"'):
        TUNING.plot(tmp_path / "tuning.png")


def fail(**options):
    raise KeyError("gone")


def without_workers(**options):
    return DataLoader(ROWS, 10)


def with_3_workers(**options):
    return DataLoader(ROWS, 10, num_workers=3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"factory": 3}, "factory=3: must be a function"),
        ({"factory": fail}, "no trial yielded batches; the first one, with num_workers=0: KeyError: 'gone'"),
        (
            {"factory": without_workers},
            "called with num_workers=1, it returned a loader with num_workers=0; pass on its keyword arguments",
        ),
        ({"factory": with_3_workers}, r"called with num_workers=0, it returned a loader with num_workers=3; "),
        ({"budget_s": 0.5}, "budget_s=0.5: must be a number of seconds >= 1"),
        ({"step_s": -1}, "step_s=-1: must be a number of seconds >= 0"),
        ({"budget_s": "1"}, "budget_s='1': "),
        ({"memory": "lots"}, "memory_limit='lots': "),
        ({"busy": "no"}, "busy='no': "),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        tune(**{"factory": DataLoader, **arguments})


def test_a_loader_that_hangs_is_bounded_by_the_budget():
    class Hanging:
        def __len__(self):
            return 10

        def __getitem__(self, index):
            time.sleep(1000)

    with pytest.raises(ValueError, match="no result after"):
        tune(lambda **options: DataLoader(Hanging(), 2, **options), 3)


def test_one_sample_that_hangs_does_not_leave_only_the_settings_that_are_too_slow_to_reach_it():
    class Waiting:
        """Each sample takes 5 ms, except for one that is never read."""

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            time.sleep(1000 if index == 101 else 0.005)
            return index

    tuning = in_time(lambda budget_s: tune(lambda **options: DataLoader(Waiting(), 4, **options), budget_s), 8)
    assert tuning.best.arguments["num_workers"] or tuning.best.arguments["concurrency"] > 1
    assert "measure the batches before it" in str(tuning)


@pytest.mark.parametrize("module", ["torch.utils.data", "gluonloader.torch"])
def test_a_loader_of_torch_is_tuned_with_the_names_of_its_arguments(module):
    data = load_or_skip(module)
    load_or_skip("torch")

    def make():
        return data.DataLoader(ROWS, batch_size=100, shuffle=True)

    tuning = in_time(lambda budget_s: tune(make, budget_s=budget_s), 8)
    assert tuning.best.samples_per_s > 0
    for trial in tuning.trials:
        assert trial.error or not {"prefetch", "start_method"} & trial.arguments.keys()
        assert "drew from" not in trial.error
    assert any(trial.arguments["num_workers"] == 2 for trial in tuning.trials if not trial.error)
