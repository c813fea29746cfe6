"""Lightning and Fabric: our loader is kept, divided over processes, and resumes exactly."""

import pytest

pytest.importorskip("lightning")

from .training import SAMPLES, run  # noqa: E402

PROGRAMS = [
    pytest.param("lightning_program", 1, marks=pytest.mark.slow),
    ("lightning_program", 2),
    ("fabric_program", 1),
]


def read_in_epoch(runs, epoch):
    """The samples that training has read; the numbers of validation steps are larger."""
    steps = [step for run in runs for step in run if step[0] == epoch and step[1] < SAMPLES]
    return sorted(index for *_, indices in steps for index in indices)


@pytest.mark.spawn
@pytest.mark.parametrize(("program", "processes"), PROGRAMS)
def test_a_run_that_is_resumed_in_mid_epoch_has_the_same_losses(tmp_path, program, processes):
    trained = run(program, tmp_path, "train", processes, processes=processes)
    resumed = run(program, tmp_path, "resume", processes, processes=processes)
    assert sorted(resumed) == sorted([step for step in steps if step[:2] > [1, 5]] for steps in trained)
    assert len(trained) == processes
    assert [read_in_epoch(trained, epoch) for epoch in range(3)] == [list(range(SAMPLES))] * 3
