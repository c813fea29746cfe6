"""The rank of this process and the number of processes, from torch, MPI or the environment."""

from __future__ import annotations

import os
from typing import Final, Literal

from ..errors import bad_argument, import_extra

Source = Literal["torch", "mpi", "env"]

_VARIABLES: Final = (  # set by torchrun, Open MPI, MPICH and Slurm
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def rank_and_size(source: Source) -> tuple[int, int]:
    """The rank of this process and the number of processes; raises ValueError if `source` does not know the rank."""
    if source == "torch":
        distributed = import_extra("torch.distributed", "torch")
        if not (distributed.is_available() and distributed.is_initialized()):
            right = "torch.distributed has no process group; call torch.distributed.init_process_group() first"
            raise bad_argument("source", "torch", right)
        return distributed.get_rank(), distributed.get_world_size()
    if source == "mpi":
        world = import_extra("mpi4py.MPI", "mpi4py").COMM_WORLD
        return world.Get_rank(), world.Get_size()
    if source == "env":
        return _from_environment()
    raise bad_argument("source", source, "must be 'torch', 'mpi' or 'env'")


def _from_environment() -> tuple[int, int]:
    for names in _VARIABLES:
        if all(name in os.environ for name in names):
            rank, size = (_number(name) for name in names)
            if rank >= size:
                text = f"environment variables {names[0]}={rank}, {names[1]}={size}"
                raise ValueError(f"{text}: the rank must be less than the number of processes")
            return rank, size
    known = ", ".join(map(" and ".join, _VARIABLES))
    raise bad_argument("source", "env", f"set one of these pairs of environment variables: {known}")


def _number(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        raise ValueError(f"environment variable {name}={text!r}: must be an int >= 0")
    return int(text)
