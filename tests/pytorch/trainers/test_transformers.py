"""The Trainer of transformers: `TrainerMixin` loads all batches, also those of an epoch that is resumed."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from .training import SAMPLES, run  # noqa: E402

SAVED_STEP = 28


@pytest.mark.spawn
def test_a_run_that_is_resumed_in_mid_epoch_has_the_same_losses(tmp_path):
    (trained,) = run("transformers_program", tmp_path, "train")
    (resumed,) = run("transformers_program", tmp_path, "resume")
    assert resumed["steps"] == trained["steps"][SAVED_STEP:]
    assert resumed["evaluations"] == trained["evaluations"]
    indices = [index for _, batch in trained["steps"] for index in batch]
    assert all(sorted(indices[k : k + SAMPLES]) == list(range(SAMPLES)) for k in range(0, 3 * SAMPLES, SAMPLES))
