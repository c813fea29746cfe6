"""Accelerate: our loader is kept, divided over processes, and resumes exactly."""

import pytest

pytest.importorskip("accelerate")

from training import BATCH, SAMPLES, run  # noqa: E402


def after_checkpoint(steps):
    return [step for step in steps if step[:2] > [1, 5]]


@pytest.mark.spawn
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("way", ["stateful", "skip"])
def test_a_run_that_is_resumed_in_mid_epoch_has_the_same_losses(tmp_path, way, processes):
    trained = run("accelerate_program", tmp_path, "train", way, processes=processes)
    resumed = run("accelerate_program", tmp_path, "resume", way, processes=processes)
    assert sorted(resumed) == sorted(map(after_checkpoint, trained))
    for epoch in range(3):
        indices = [index for steps in trained for step in steps if step[0] == epoch for index in step[3]]
        assert sorted(indices) == list(range(SAMPLES))
    assert len(trained) == processes
    # Three batches accumulate; the last batch of an epoch updates the weights, although fewer have accumulated.
    last = SAMPLES // BATCH // processes - 1
    assert all(updates is ((step + 1) % 3 == 0 or step == last) for _, step, *_, updates in trained[0])
