"""Which processes belong to one program, so that they share workers."""

from __future__ import annotations

import multiprocessing
import sys

import pytest
from samples import Numbered
from sharing import lists, loader_of, new_name, over_ranks

from gluonloader.executors.shared.program import program

pytestmark = pytest.mark.numpy_only

LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
             "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE",
             "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "GLUONLOADER_PROGRAM")  # fmt: skip


@pytest.fixture
def of(monkeypatch):
    """The program of rank 0 of 2, or of another rank, with these arguments and variables."""

    def of(*arguments, index=0, count=2, **variables):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [__file__, *arguments])
            for name in LAUNCHERS:
                patch.delenv(name, raising=False)
            for name, value in variables.items():
                patch.setenv(name, str(value))
            return program(index, count)

    return of


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--local_rank=0"], ["--local_rank=1"]),
        (["--local-rank", "0", "--lr", "1"], ["--local-rank", "1", "--lr", "1"]),
        (["--rank", "0"], ["--rank", "1"]),
        (["-rank", "0", "data"], ["-rank", "1", "data"]),
        (["--gpu", "0"], ["--gpu", "1"]),
        (["--device", "cuda:0"], ["--device", "cuda:1"]),
        (["--process_id=0"], ["--process_id=1"]),
        (["a=1"], ["a=1", "hydra.run.dir=x", "hydra.job.name=train_ddp_process_1"]),
    ],
)
def test_arguments_that_carry_a_rank_do_not_count(of, first, second):
    assert of(*first) == of(*second, index=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--lr", "1"], ["--lr", "2"]),
        (["--rank", "--lr=1"], ["--rank", "--lr=2"]),
        (["--rank=0", "a"], ["--rank=0", "b"]),
        ([], ["0"]),
        (["a"], ["b"]),
    ],
)
def test_other_arguments_tell_programs_apart(of, first, second):
    assert of(*first) != of(*second)


def test_a_launcher_that_has_made_the_rank_identifies_the_program(of):
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 2, "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 1}
    torchrun = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "a", "MASTER_PORT": 1, "TORCHELASTIC_RUN_ID": "x"}
    mpi = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2, "PMIX_NAMESPACE": "x"}
    for rank, variables, other in (
        ("SLURM_PROCID", slurm, {"SLURM_STEP_ID": 2}),
        ("RANK", torchrun, {"TORCHELASTIC_RUN_ID": "y"}),
        ("OMPI_COMM_WORLD_RANK", mpi, {"PMIX_NAMESPACE": "y"}),
    ):
        assert of(**variables) == of(index=1, **{**variables, rank: 1}) != of(**{**variables, **other})


def test_a_launcher_that_has_not_made_the_ranks_does_not_count(of):
    """Two programs of one Slurm step each start two ranks; then their parents tell them apart."""
    step = {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 1}
    assert of(**step) == of(index=1, **step) == of()


def test_a_process_group_of_torch_identifies_the_program_without_a_launcher(of):
    """As with Lightning, whose first rank is the parent of the others."""
    group = {"MASTER_ADDR": "a", "MASTER_PORT": 1}
    assert of(**group) == of(index=1, LOCAL_RANK=1, **group) != of(MASTER_ADDR="a", MASTER_PORT=2)


def test_a_name_of_the_user_replaces_all_else(of):
    assert of("a", GLUONLOADER_PROGRAM="x") == of("b", RANK=0, GLUONLOADER_PROGRAM="x") == ["x"]
    assert of(GLUONLOADER_PROGRAM="x") != of(GLUONLOADER_PROGRAM="y")


def read_as(number, name, together):
    """Programs 0 and 1 of two ranks each, all with one parent; ranks of different programs come at the same time."""
    sys.argv = [__file__, f"--data={number // 2}"]
    with loader_of(number % 2, 2, name, Numbered(20 + 20 * (number // 2))) as loader:
        together.wait(60)
        return lists(loader)


def test_two_programs_of_one_shell_do_not_meet():

    name = new_name()
    answers = over_ranks(4, read_as, name, multiprocessing.Barrier(4))
    for number, found in enumerate(answers):
        with loader_of(number % 2, 2, None, Numbered(20 + 20 * (number // 2))) as own:
            assert found == lists(own)
