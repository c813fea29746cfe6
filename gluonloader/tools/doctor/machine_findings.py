"""Judges the facts of a machine: what will break, what is slow, and what to do.

The figures in these texts and thresholds are explained in docs/speed.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

from ...describe import counted
from ...errors import install_command
from ...executors.process.native_threads import DANGERS
from ...messages import message
from ...units import size
from .finding import Finding, Level
from .machine import Machine

# Descriptors of the main program, measured: with these a loader works, with one less it does not start.
_PER_WORKER: Final = 5  # the lane, the log, the pidfd and the pipes of `Popen`
_PER_LOADER: Final = 10  # the waker, the pipes of the Pool, and one slab
_TO_SPAWN: Final = 4  # more while a worker starts by spawn or forkserver
_PER_SLAB: Final = 1 if sys.version_info >= (3, 13) else 2  # before Python 3.13, a mapping needs one, too
_SPARE: Final = 16  # the loader leaves these to the program, and then copies batches instead of lending slabs
_FEW_DESCRIPTORS: Final = 256
_USUAL_DESCRIPTORS: Final = 1024

_SHOWN_NAMES: Final = 4  # of threads
_SMALL_SHM: Final = 1 << 30  # bytes
_LITTLE_MEMORY: Final = 1 << 30  # bytes
# If any of these is set, glibc no longer adapts its thresholds; see memory/warm.py.
_THRESHOLDS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@message(frozen=True, slots=True)
class Needs:
    """What a loader will need.

    Attributes:
        workers: number of workers; 0 for a loader without workers.
        forks: whether the workers are forked.
        processes: whether the workers are processes.
        window: number of batches in flight.
        batch_bytes: size of the largest batch; 0 if it is unknown.
        memory_limit: the loader's argument.
        waits: whether samples wait most of their time, so that more workers than cores are useful.
    """

    workers: int
    forks: bool = True
    processes: bool = True
    window: int = 0
    batch_bytes: int = 0
    memory_limit: int | None = None
    waits: bool = False


def machine_findings(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """Judges a machine for a loader with these needs."""
    yield _versions(machine)
    yield from _cores(machine, needs)
    yield _memory(machine, needs)
    yield _shm(machine, needs)
    yield _descriptors(machine, needs)
    yield _start_method(machine)
    yield _threads(machine, needs)
    yield from _frameworks(machine)
    yield from _decoders(machine)
    yield _allocator(machine)


def _versions(machine: Machine) -> Finding:
    text = f"Python {machine.python}, NumPy {machine.numpy}, {machine.libc}, {machine.system}"
    return Finding("versions", "ok", text.replace(", ,", ","))


def _cores(machine: Machine, needs: Needs) -> Iterator[Finding]:
    cores, allowed, quota = machine.cores, machine.allowed_cores, machine.cpu_quota
    text = counted(cores, "core", "cores") + (f" of {machine.cpus}" if cores < machine.cpus else "")
    is_limited = quota is not None and quota < allowed
    if is_limited and not _limits_threads(machine.variables, cores):
        what = f"a CPU quota allows {text}, but libraries start {allowed} threads each, which exhaust the quota"
        cure = f"export OMP_NUM_THREADS={cores}; or a larger quota (docker run --cpus={allowed})"
        yield Finding("cores", "warning", what, cure)
    if needs.processes and needs.workers > cores and not needs.waits:
        what = f"{needs.workers} worker processes on {text}"
        yield Finding("cores", "warning", what, f"num_workers={cores} or 'auto'")
    elif cores == 1:
        cure = "use a second core, so that a worker runs while the program trains (docker run --cpus=2)"
        yield Finding("cores", "note", f"{text}: workers and the training share it", cure)
    else:
        yield Finding("cores", "ok", text)


def _limits_threads(variables: dict[str, str], cores: int) -> bool:
    """Whether NumPy and the libraries that use OpenMP start no more threads than there are cores."""
    number = variables.get("OMP_NUM_THREADS", "").partition(",")[0]
    return number.isdecimal() and int(number) <= cores


def _memory(machine: Machine, needs: Needs) -> Finding:
    text = f"{size(machine.memory)} available"
    if machine.memory_limit is not None:
        text += f", limit of the container {size(machine.memory_limit)}"
    batch, limit = needs.batch_bytes, needs.memory_limit
    if batch and needs.processes and needs.workers:
        wanted = batch * (needs.window + 2)  # one batch that the program uses, and one free slab
        wanted = wanted if limit is None else min(wanted, limit)
        text = f"batches need {size(wanted)} of shared memory ({size(batch)} each); {text}"
        if machine.file_size_limit is not None and batch > machine.file_size_limit:
            text = f"a batch takes {size(batch)}, but `ulimit -f` limits files, including files in memory, to {{}}"
            return Finding("memory", "problem", text.format(size(machine.file_size_limit)), "ulimit -f unlimited")
        if limit is not None and batch > limit:
            cure = f"memory_limit='{-(-batch * needs.window >> 20)}MB', or a smaller batch_size"
            return Finding("memory", "problem", f"a batch takes {size(batch)}, but memory_limit is {size(limit)}", cure)
        if wanted > machine.memory // 2:
            level: Level = "problem" if batch > machine.memory else "warning"
            return Finding("memory", level, text, "a smaller batch_size, prefetch or num_workers; or memory_limit")
    if machine.oom_kills:
        killed = counted(machine.oom_kills, "process", "processes")
        text = f"the kernel has killed {killed} of this container for lack of memory; {text}"
        return Finding("memory", "warning", text, "a smaller batch_size, prefetch or num_workers; or a higher limit")
    if machine.memory < _LITTLE_MEMORY:
        return Finding("memory", "note", text, "pass memory_limit to the loader, e.g. memory_limit='256MB'")
    return Finding("memory", "ok", text)


def _shm(machine: Machine, needs: Needs) -> Finding:
    """Judges `/dev/shm`. Batches lie in anonymous files (memfd), which its size does not limit, if there are any."""
    folder = machine.shared_folder
    grow = "docker run --shm-size=2g, or as root: mount -o remount,size=2G /dev/shm"
    if folder is None:
        level: Level = "note" if machine.anonymous_files else "warning"
        return Finding("/dev/shm", level, "missing: multiprocessing.Lock() and other loaders fail", grow)
    text = f"{size(folder.size)}, {size(folder.free)} free"
    wanted = needs.batch_bytes * (needs.window + 2) if needs.processes and needs.workers else 0
    if not machine.anonymous_files and wanted > folder.free:
        return Finding("/dev/shm", "problem", f"{text}, but batches need {size(wanted)} there", grow)
    if folder.lock_error:
        text = f"{text}: multiprocessing.Lock() fails ({folder.lock_error}); gluonloader does not need it"
        return Finding("/dev/shm", "warning", text, grow)
    if folder.size < _SMALL_SHM:
        text = f"{text}: enough for gluonloader, but perhaps too little for torch, MXNet and Ray"
        return Finding("/dev/shm", "note", text, grow)
    return Finding("/dev/shm", "ok", text)


def _descriptors(machine: Machine, needs: Needs) -> Finding:
    opened, limit, hard = machine.descriptors, machine.descriptor_limit, machine.hard_descriptor_limit
    text = f"{opened} open, the limit is {limit:,}"
    least = most = opened + _SPARE
    if needs.processes and needs.workers:
        least = opened + _PER_LOADER + _PER_WORKER * needs.workers + (0 if needs.forks else _TO_SPAWN)
        most = least + _PER_SLAB * needs.window + _SPARE
        many = counted(needs.workers, "worker needs", "workers need")
        text = f"{many} {least - opened} to {most - opened}; {text}"
    enough = max(_USUAL_DESCRIPTORS, 2 * most)
    cure = f"ulimit -n {enough}"
    if hard < enough:
        workers = max(1, (limit - opened - _PER_LOADER - _TO_SPAWN - _SPARE) // (_PER_WORKER + 4 * _PER_SLAB))
        cure = f"docker run --ulimit nofile={enough}:{enough} (the hard limit is {hard}), or num_workers={workers}"
    if least > limit:
        return Finding("descriptors", "problem", f"{text}: workers cannot start", cure)
    if most > limit:
        return Finding("descriptors", "warning", f"{text}: batches will be copied", cure)
    if limit < _USUAL_DESCRIPTORS:
        level: Level = "warning" if limit < _FEW_DESCRIPTORS else "note"
        return Finding("descriptors", level, f"{text}: perhaps too few if the dataset opens files", cure)
    return Finding("descriptors", "ok", text)


def _start_method(machine: Machine) -> Finding:
    method = machine.start_method
    if method == "fork":
        return Finding("start method", "ok", "fork: workers inherit the dataset, which need not be picklable")
    text = f"{method}: the dataset is pickled, and workers import the main script"
    cure = "if __name__ == '__main__': around the code of the script; or start_method='fork' in the DataLoader"
    return Finding("start method", "note", text, cure)


def _threads(machine: Machine, needs: Needs) -> Finding:
    threads, forks = machine.threads, needs.forks and needs.processes
    if threads.library is not None:
        danger = DANGERS[threads.library]
        text = f"{threads.library} has threads, which forked workers do not have: there, {danger.effect}"
        return Finding("threads", "warning" if forks else "note", text, f"{danger.cure}; or start_method='forkserver'")
    if "jax" in machine.imported and forks:
        text = "JAX is imported: if it computes in a forked worker, the worker hangs"
        cure = "return NumPy arrays from the dataset and pass output='jax'; or start_method='forkserver'"
        return Finding("threads", "note", text, cure)
    if threads.native or threads.python:
        names = [f"{count} x {name}" for name, count in threads.native]
        names += [f"{name} (of Python)" for name in threads.python]
        owners = f" (perhaps of {', '.join(threads.candidates)})" if threads.candidates else ""
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        text = f"alive before a fork: {', '.join(names[:_SHOWN_NAMES])}{more}{owners}"
        cure = "start_method='forkserver', if they hold locks or compute while workers start"
        return Finding("threads", "note" if forks else "ok", text, cure if forks else "")
    count = counted(threads.end_at_fork, "native thread", "native threads")
    text = f"{count}, which libraries such as NumPy end before a fork"
    return Finding("threads", "ok", text if threads.end_at_fork else "only the main thread")


def _frameworks(machine: Machine) -> Iterator[Finding]:
    if "mxnet" in machine.packages and tuple(map(int, machine.numpy.split(".")[:2])) >= (1, 24):
        text = f"MXNet {machine.packages['mxnet']} cannot be imported with NumPy {machine.numpy}"
        cure = "call gluonloader.mxnet.patch_numpy() before anything imports mxnet"
        yield Finding("frameworks", "warning", text, cure)
        return
    found = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    yield Finding("frameworks", "ok", found or "only NumPy")


def _decoders(machine: Machine) -> Iterator[Finding]:
    working = [decoder for decoder in machine.decoders if not decoder.error]
    for decoder in machine.decoders:
        if decoder.error:
            cure = "pip install opencv-python-headless" if decoder.name == "OpenCV" else "install it again"
            yield Finding("decoders", "warning", f"{decoder.name} cannot be imported: {decoder.error}", cure)
    install = install_command("vision")
    if not working:
        yield Finding("decoders", "note", "no image decoder is installed", f"{install}, if you load images")
        return
    text = ", ".join(f"{decoder.name} {decoder.version}" for decoder in working)
    if any(decoder.name == "simplejpeg" for decoder in working):
        yield Finding("decoders", "ok", text)
    else:
        yield Finding("decoders", "note", f"{text}; simplejpeg, which decodes JPEG fastest, is not installed", install)


def _allocator(machine: Machine) -> Finding:
    variables = machine.variables
    preloaded = re.search(r"jemalloc|tcmalloc|mimalloc", variables.get("LD_PRELOAD", ""))
    if preloaded or not machine.libc.startswith("glibc"):
        name = preloaded[0] if preloaded else machine.libc or "not glibc"
        return Finding("allocator", "ok", f"{name}, whose settings are not checked")
    given = [name for name in _THRESHOLDS if name in variables]
    if not given or {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} <= set(given):
        return Finding("allocator", "ok", f"glibc{' with ' if given else ''}{' and '.join(given)}")
    text = f"{' and '.join(given)} without both thresholds: large arrays cause new page faults for each sample"
    both = "MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=134217728"
    return Finding("allocator", "warning", text, f"unset {' '.join(given)}; or set both: export {both}")
