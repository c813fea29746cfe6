"""Which of how many processes this one is, read only when it is asked for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final, Literal

from ..errors import MissingExtraError, bad_argument

__all__ = ["Source", "rank_and_size"]

Source = Literal["torch", "mpi", "env"]

_VARIABLES: Final = (  # of torchrun, Open MPI, MPICH and Slurm
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def rank_and_size(source: Source) -> tuple[int, int]:
    """The number of this process, and how many there are.

    Raises:
        ValueError: `source` does not say, or is none of the three.
        MissingExtraError: its package is not installed.
    """
    if source == "torch":
        return _of_torch()
    if source == "mpi":
        world = _imported("mpi4py.MPI", "mpi4py").COMM_WORLD
        return world.Get_rank(), world.Get_size()
    if source == "env":
        return _of_environment()
    raise bad_argument("source", source, "give 'torch', 'mpi' or 'env'")


def _of_torch() -> tuple[int, int]:
    distributed = _imported("torch.distributed", "torch")
    if not (distributed.is_available() and distributed.is_initialized()):
        right = "torch.distributed has no process group; call torch.distributed.init_process_group() first"
        raise bad_argument("source", "torch", right)
    return distributed.get_rank(), distributed.get_world_size()


def _of_environment() -> tuple[int, int]:
    for names in _VARIABLES:
        if all(name in os.environ for name in names):
            rank, size = (_number(name) for name in names)
            if rank >= size:
                raise ValueError(f"environment variables {names[0]}={rank}, {names[1]}={size}: the rank has to be less")
            return rank, size
    known = ", ".join(map(" and ".join, _VARIABLES))
    raise bad_argument("source", "env", f"no such pair of variables is set: {known}")


def _number(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        raise ValueError(f"environment variable {name}={text!r}: has to be an int >= 0")
    return int(text)


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(package) from error
