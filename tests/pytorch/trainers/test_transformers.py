"""The Trainer of transformers: `TrainerMixin` loads all batches, also those of an epoch that is resumed."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from .training import BATCH, SAMPLES, run  # noqa: E402

SAVED_STEP = 28


@pytest.mark.spawn
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_run_that_is_resumed_in_mid_epoch_has_the_same_losses(tmp_path, processes):
    trained = run("transformers_program", tmp_path, "train", processes=processes)
    resumed = run("transformers_program", tmp_path, "resume", processes=processes)
    expected = [[process["steps"][SAVED_STEP:], process["evaluations"]] for process in trained]
    assert sorted([process["steps"], process["evaluations"]] for process in resumed) == sorted(expected)
    assert len(resumed) == processes
    per_epoch = SAMPLES // BATCH // processes
    for start in range(0, 3 * per_epoch, per_epoch):
        steps = [step for process in trained for step in process["steps"][start : start + per_epoch]]
        assert sorted(index for _, indices in steps for index in indices) == list(range(SAMPLES))
