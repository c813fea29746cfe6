"""`Ranks`: which part of a dataset a process reads, of several that train together.

The rank of this process and the number of processes can be passed, or come from torch, MPI or the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from .checks import check_int
from .describe import arguments, call, short_repr
from .errors import bad_argument, import_extra

Policy = Literal["uneven", "drop", "repeat"]
RankSource = Literal["torch", "mpi", "env"]

_VARIABLES: Final = (  # set by torchrun, Open MPI, MPICH and Slurm
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
# The variables with which each of these identifies one of its programs; MPICH has none.
_OF_PROGRAM: Final = (
    ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("PMIX_NAMESPACE",),
    (),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
_OF_TORCH: Final = ("MASTER_ADDR", "MASTER_PORT")  # set for a process group, also if no launcher tells the rank
# How many processes of the program run on this machine, according to the launcher.
_LOCAL_RANKS: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_OF_NODES: Final = "SLURM_STEP_TASKS_PER_NODE"  # the same for each node of Slurm, such as "8(x2),4"


@dataclass(frozen=True)
class Ranks:
    """Which samples of a dataset this process reads; see `docs/processes.md`.

    From a dataset with `__getitem__`, it reads the samples number `index`, `index + count`, `index + 2 * count`, ... of
    the order that all processes share, or the batches of the `batch_sampler` with these numbers. From an iterable
    dataset, it reads the shards with these numbers.

    All processes of a training program need the same number of batches if they wait for each other at each step. The
    policies "drop" and "repeat" give them the same number.

    Args:
        index: the rank of this process, from 0.
        count: the number of processes.
        policy: "uneven": each process delivers its own samples, so some processes may deliver more batches than others.
            "drop": the last samples or batches, which only some processes would deliver, are left out. "repeat": each
            process delivers as many batches as the process with the most, by repeating samples from the start of the
            epoch. The default, None, is "repeat" for a dataset with `__getitem__`. For an iterable dataset it is
            "uneven", since "drop" and "repeat" have to know the length of each shard.
        shard_lengths: for an iterable dataset with "drop" or "repeat", or for `len(loader)`, the number of samples in
            each shard, in the order of the shards. Not needed if `len(dataset)`, or `len` of the shards that the
            dataset's `shard` returns, says it.
        gather: a function that is called on all processes with an int, and returns the ints of all processes in the
            order of the ranks. For example with MPI: `gather=comm.allgather`. With an iterable dataset and "drop" or
            "repeat", it exchanges the numbers of batches, so a process has to know the lengths of its own shards only.
            With any other dataset, it compares the orders of the processes when the first epoch starts.
        share: "node" lets all ranks on this machine share the `num_workers` worker processes of their loaders. The
            dataset may then be a function that returns the dataset, and that is called once on the machine. Give a
            second loader a name: "node:validation". See `docs/processes.md`.

    Raises:
        ValueError: an argument is wrong; the text says what to pass instead.
    """

    index: int
    count: int
    policy: Policy | None = None
    shard_lengths: Sequence[int] | None = None
    gather: Callable[[int], Sequence[int]] | None = None
    share: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check_int("count", self.count, 1))  # not an int of NumPy, which overflows
        object.__setattr__(self, "index", check_int("index", self.index))
        if self.index >= self.count:
            raise bad_argument("index", self.index, f"must be an int from 0 to count - 1 ({self.count - 1})")
        if self.policy not in (None, "uneven", "drop", "repeat"):
            raise bad_argument("policy", self.policy, "must be 'uneven', 'drop' or 'repeat'")
        if self.gather is not None and not callable(self.gather):
            raise bad_argument("gather", self.gather, "must be a function of one int, or None")
        share = self.share
        if share is not None and not (isinstance(share, str) and re.fullmatch("node(:.+)?", share, re.DOTALL)):
            raise bad_argument("share", share, "must be 'node' or 'node:NAME', e.g. 'node:validation'")

    @short_repr
    def __repr__(self) -> str:
        return call(self, repr(self.index), repr(self.count), *arguments(policy=self.policy, share=self.share))

    @classmethod
    def of(cls, source: RankSource, policy: Policy | None = None, **options: Any) -> Ranks:
        """Returns the ranks that `source` knows.

        Args:
            source: 'torch' (its process group), 'mpi' (mpi4py), or 'env', the variables that torchrun, Open MPI, MPICH
                or Slurm set.
            policy, options: as for the class.

        Raises:
            ValueError: `source` does not know the rank; the text lists where the rank was looked for.
            MissingExtraError: torch or mpi4py is not installed.
        """
        return cls(*rank_and_size(source), policy, **options)

    def gathered(self, value: int) -> list[int]:
        """What `gather` returns for the value of this process.

        Raises:
            ValueError: it is not the value of each process.
        """
        assert self.gather is not None
        values = list(self.gather(value))
        if len(values) != self.count or values[self.index] != value:
            what = f"gather({value}) returned {values!r:.80} on rank {self.index} of {self.count}"
            raise ValueError(f"ranks: {what}; return the argument of each rank, in the order of the ranks")
        return values


def rank_and_size(source: RankSource, name: str = "source") -> tuple[int, int]:
    """The rank of this process and the number of processes; raises ValueError if `source` does not know the rank.

    Args:
        name: the name of the argument that the user has passed.
    """
    if source == "torch":
        distributed = import_extra("torch.distributed", "torch")
        if not (distributed.is_available() and distributed.is_initialized()):
            right = "torch.distributed has no process group; call torch.distributed.init_process_group() first"
            raise bad_argument(name, "torch", right)
        return distributed.get_rank(), distributed.get_world_size()
    if source == "mpi":
        world = import_extra("mpi4py.MPI", "mpi4py").COMM_WORLD
        return world.Get_rank(), world.Get_size()
    if source == "env":
        return _from_environment(name)
    raise bad_argument(name, source, "must be 'torch', 'mpi' or 'env'")


def _from_environment(argument: str) -> tuple[int, int]:
    for names in _VARIABLES:
        if all(name in os.environ for name in names):
            rank, size = (_number(name) for name in names)
            if rank >= size:
                text = f"environment variables {names[0]}={rank}, {names[1]}={size}"
                raise ValueError(f"{text}: the rank must be less than the number of processes")
            return rank, size
    known = ", ".join(map(" and ".join, _VARIABLES))
    right = f"a launcher sets one of these pairs of environment variables: {known}; none of them is complete here"
    cure = f"start the program by a launcher, or, for one process, leave out {argument}"
    raise bad_argument(argument, "env", f"{right}; {cure}")


def launched_by(index: int, count: int) -> list[str]:
    """Variables that identify this program among those of the launcher which has made it rank `index` of `count`.

    Empty if no launcher has, or if its variables do not identify the program.
    """
    launched = [
        names
        for pair, names in zip(_VARIABLES, _OF_PROGRAM, strict=True)
        if [os.environ.get(name) for name in pair] == [str(index), str(count)]
    ]
    for names in (*launched, _OF_TORCH):
        if found := [f"{name}={os.environ[name]}" for name in names if name in os.environ]:
            return found
    return []


def _number(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        raise ValueError(f"environment variable {name}={text!r}: must be an int >= 0")
    return int(text)


def local_ranks(otherwise: int) -> int:
    """How many processes of this program run on this machine; `otherwise` if no launcher tells it."""
    for variable in _LOCAL_RANKS:
        if (text := os.environ.get(variable, "")).isdecimal():
            return max(1, int(text))
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get(_OF_NODES, ""))
    of_nodes = [int(tasks) for tasks, nodes in groups for _ in range(int(nodes or 1))]
    node = os.environ.get("SLURM_NODEID", "")
    return of_nodes[int(node)] if node.isdecimal() and int(node) < len(of_nodes) else otherwise
