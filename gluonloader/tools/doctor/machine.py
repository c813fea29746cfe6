"""The facts of the machine and of this process, without judging them; machine_findings.py judges them."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import resource
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import numpy as np

from ...executors.process.native_threads import library_with_threads, native_threads
from ...limits import GROUPS, OWN, allowed_cores, available_cores, available_memory, cpu_quota, memory_limit, oom_kills
from ...loader import DataLoader
from ...messages import message

SHM: Final = Path("/dev/shm")
_PACKAGES: Final = ("torch", "jax", "mxnet", "ray", "pyarrow", "polars")  # they matter for batches or for a fork
_DECODERS: Final = {"simplejpeg": "simplejpeg", "OpenCV": "cv2", "Pillow": "PIL.Image"}
_VARIABLES: Final = re.compile(r"MALLOC_\w+_|LD_PRELOAD|(OMP|OPENBLAS|MKL)_NUM_THREADS")
_PROGRAM_S: Final = 60  # seconds that a program of the system may take

# Prints a JSON object: the version of each decoder, or why it cannot be imported. It runs as a separate program, since
# an import can start threads, or end the program.
_IMPORT: Final = """
import importlib, json, sys
found = {}
for module in sys.argv[1:]:
    try:
        found[module] = [True, str(getattr(importlib.import_module(module), "__version__", "installed"))]
    except ModuleNotFoundError:
        pass
    except Exception as error:
        found[module] = [False, str(error)]
print(json.dumps(found))
"""


@message(frozen=True, slots=True)
class SharedFolder:
    """The folder `/dev/shm`: its bytes, and why a lock of `multiprocessing` cannot be created there ("" if it can)."""

    size: int
    free: int
    lock_error: str


@message(frozen=True, slots=True)
class ProcessThreads:
    """The threads of this process besides the main thread.

    Attributes:
        python: the names of threads that Python has started.
        end_at_fork: native threads that their library ends before a fork, such as those of NumPy's OpenBLAS.
        native: other native threads, which a forked worker does not have; how many by their name.
        library: "OpenCV" or "Polars" if such threads belong to it; otherwise None.
        candidates: libraries that are imported, and to which the native threads may belong.
    """

    python: tuple[str, ...] = ()
    end_at_fork: int = 0
    native: tuple[tuple[str, int], ...] = ()
    library: str | None = None
    candidates: tuple[str, ...] = ()


@message(frozen=True, slots=True)
class Decoder:
    """An image decoder that is installed: its version, or why it cannot be imported."""

    name: str
    version: str = ""
    error: str = ""


@message(frozen=True, slots=True)
class Machine:
    """What limits a loader on this machine; None stands for no limit.

    Attributes:
        cpus, allowed_cores, cpu_quota, cores: cores of the machine, by the affinity and by the quota of the cgroup, and
            how many of them a loader uses.
        memory: bytes that are available.
        oom_kills: processes of the cgroup that the kernel has killed because it had no memory left.
        file_size_limit: the largest file in bytes (`ulimit -f`), which also limits files in memory.
        descriptors, descriptor_limit, hard_descriptor_limit: open descriptors, and how many may be open (`ulimit -n`).
        start_method: how workers of a loader start by default.
        imported: the packages of `packages` that this process has imported.
        variables: environment variables that change memory allocation or the number of threads.
    """

    python: str
    numpy: str
    system: str
    libc: str
    cpus: int
    allowed_cores: int
    cpu_quota: float | None
    cores: int
    memory: int
    memory_limit: int | None
    oom_kills: int
    file_size_limit: int | None
    anonymous_files: bool
    shared_folder: SharedFolder | None
    descriptors: int
    descriptor_limit: int
    hard_descriptor_limit: int
    start_method: str
    threads: ProcessThreads
    packages: dict[str, str]
    imported: tuple[str, ...]
    decoders: tuple[Decoder, ...]
    variables: dict[str, str]


def gather(own: Path = OWN, groups: Path = GROUPS, shm: Path = SHM) -> Machine:
    """Looks at the machine and at this process; forks once.

    Args:
        own, groups: as for `available_cores`.
        shm: the folder for shared memory.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    file_size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    packages = dict(_installed(_PACKAGES))
    return Machine(
        python=platform.python_version(),
        numpy=np.__version__,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip(),
        cpus=os.cpu_count() or 1,
        allowed_cores=allowed_cores(),
        cpu_quota=cpu_quota(own, groups),
        cores=available_cores(own, groups),
        memory=available_memory(own, groups),
        memory_limit=memory_limit(own, groups),
        oom_kills=oom_kills(own, groups),
        file_size_limit=None if file_size == resource.RLIM_INFINITY else file_size,
        anonymous_files=hasattr(os, "memfd_create"),
        shared_folder=_shared_folder(shm),
        descriptors=open_descriptors(),
        descriptor_limit=_unlimited(soft),
        hard_descriptor_limit=_unlimited(hard),
        start_method=DataLoader([0], 1).epochs.workers.options.start_method,
        threads=threads_alive(),
        packages=packages,
        imported=tuple(name for name in packages if name in sys.modules),
        decoders=_decoders(),
        variables={name: value for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)},
    )


def threads_alive() -> ProcessThreads:
    """Looks at the threads of this process before and after a fork."""
    python = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    candidates = tuple(name for name in ("cv2", "jax", "mxnet", "pyarrow", "sklearn", "torch") if name in sys.modules)
    try:
        before = native_threads()
        _fork()
        left = native_threads()
        library = library_with_threads() if left else None
    except OSError:  # there is no /proc, or no free descriptor
        return ProcessThreads(tuple(python))
    native = sorted(Counter(name.strip() for name in left).items())
    return ProcessThreads(tuple(python), len(before) - len(left), tuple(native), library, candidates if left else ())


def _fork() -> None:
    """Forks a child that does nothing, so that libraries do here what they do before a worker is forked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of a fork beside other threads
        child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def open_descriptors() -> int:
    """Returns how many descriptors this process has open; 0 if that is unknown."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # that of the folder itself
    except OSError:
        return 0


def _unlimited(limit: int) -> int:
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def _shared_folder(folder: Path) -> SharedFolder | None:
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    error = ""
    try:
        multiprocessing.get_context("fork").Lock()
    except (OSError, ValueError, ImportError) as failure:
        error = str(failure)
    return SharedFolder(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize, error)


def _installed(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            pass


def _decoders() -> tuple[Decoder, ...]:
    command = [sys.executable, "-W", "ignore", "-c", _IMPORT, *_DECODERS.values()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
    known = [(name, *found[module]) for name, module in _DECODERS.items() if module in found]
    return tuple(Decoder(name, text) if works else Decoder(name, error=text) for name, works, text in known)
