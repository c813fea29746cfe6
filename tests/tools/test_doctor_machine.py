"""The findings of `doctor` about a machine: each fact that matters, and that the cures work."""

import dataclasses
import functools
import os
import re
import resource
import shlex
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from conftest import run_program

from gluonloader.tools.doctor.machine import Decoder, ProcessThreads, SharedFolder, gather
from gluonloader.tools.doctor.machine_findings import Needs, machine_findings

MB, GB = 1 << 20, 1 << 30
LOADER = Needs(workers=4, window=16, batch_bytes=MB)


@pytest.fixture(scope="module")
def healthy():
    """A machine without findings, made of the facts of this one."""
    return replace(
        gather(),
        numpy="2.4.1",
        libc="glibc 2.36",
        cpus=8,
        allowed_cores=8,
        cpu_quota=None,
        cores=8,
        memory=16 * GB,
        memory_limit=None,
        oom_kills=0,
        file_size_limit=None,
        anonymous_files=True,
        shared_folder=SharedFolder(8 * GB, 8 * GB, ""),
        descriptors=5,
        descriptor_limit=1024,
        hard_descriptor_limit=4096,
        start_method="fork",
        threads=ProcessThreads(),
        packages={"torch": "2.13.0"},
        imported=(),
        decoders=(Decoder("simplejpeg", "1.9"), Decoder("OpenCV", "5.0")),
        variables={},
    )


def found(machine, needs=LOADER):
    """The first finding of each name that is not "ok"."""
    findings = [finding for finding in machine_findings(machine, needs) if finding.level != "ok"]
    return {finding.name: finding for finding in reversed(findings)}


def only(machine, needs=LOADER):
    findings = found(machine, needs)
    assert len(findings) == 1, findings
    return next(iter(findings.values()))


def test_a_healthy_machine(healthy):
    if sys.version_info < (3, 14):
        assert found(healthy) == {}
    names = [finding.name for finding in machine_findings(healthy, LOADER)]
    assert len(names) == len(set(names)) >= 10


# The facts that differ from those of a healthy machine, the name and the level of the only finding, and the starts of
# its text and of its cure.
FINDINGS = [
    ({"file_size_limit": MB // 2}, "memory", "problem", "a batch takes 1 MB, but `ulimit -f`", "ulimit -f unlimited"),
    ({"oom_kills": 3}, "memory", "warning", "the kernel has killed 3 processes", "a smaller batch_size"),
    ({"shared_folder": SharedFolder(64 * MB, 60 * MB, "")}, "/dev/shm", "note",
     "64 MB, 60 MB free: enough for gluonloader", "docker run --shm-size"),
    ({"shared_folder": SharedFolder(8 * GB, 8 * GB, "Read-only file system")}, "/dev/shm", "warning",
     "8 GB, 8 GB free: multiprocessing.Lock() fails (Read-only file system)", "docker run --shm-size"),
    ({"shared_folder": None}, "/dev/shm", "note", "missing", "docker run --shm-size"),
    ({"start_method": "spawn"}, "start method", "note", "spawn: the dataset is pickled", "if __name__ == '__main__'"),
    ({"packages": {"mxnet": "1.9.1"}}, "frameworks", "warning", "MXNet 1.9.1", "call gluonloader.mxnet.patch_numpy()"),
    ({"packages": {"jax": "0.8"}, "imported": ("jax",)}, "threads", "note", "JAX is imported", "return NumPy arrays"),
    ({"decoders": ()}, "decoders", "note", "no image decoder", 'pip install "gluonloader[vision]", if you load images'),
    ({"decoders": (Decoder("Pillow", "11.0"),)}, "decoders", "note", "Pillow 11.0; simplejpeg, which",
     'pip install "gluonloader[vision]"'),
    ({"decoders": (Decoder("simplejpeg", "1.9"), Decoder("OpenCV", error="libGL.so.1"))}, "decoders", "warning",
     "OpenCV cannot be imported: libGL.so.1", "pip install opencv-python-headless"),
    ({"variables": {"MALLOC_TRIM_THRESHOLD_": "134217728"}}, "allocator", "warning",
     "MALLOC_TRIM_THRESHOLD_ without both thresholds", "unset MALLOC_TRIM_THRESHOLD_;"),
    ({"variables": {"MALLOC_MMAP_THRESHOLD_": "134217728"}}, "allocator", "warning",
     "MALLOC_MMAP_THRESHOLD_ without both thresholds", "unset MALLOC_MMAP_THRESHOLD_;"),
    ({"variables": {"MALLOC_TOP_PAD_": "65536", "MALLOC_TRIM_THRESHOLD_": "1"}}, "allocator", "warning",
     "MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ without both thresholds", "unset MALLOC_TRIM_THRESHOLD_ MALLOC_TOP"),
]  # fmt: skip
HARMLESS = [
    {"file_size_limit": 2 * MB},
    {"packages": {"mxnet": "1.9.1"}, "numpy": "1.23.5"},
    {"variables": {"MALLOC_TRIM_THRESHOLD_": "1", "MALLOC_MMAP_THRESHOLD_": "1"}},
    {"variables": {"MALLOC_ARENA_MAX": "2"}},
    {"variables": {"MALLOC_TRIM_THRESHOLD_": "1", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}},
]


@pytest.mark.parametrize(("facts", "name", "level", "text", "cure"), FINDINGS, ids=[str(row[0]) for row in FINDINGS])
def test_a_fact_and_its_only_finding(healthy, facts, name, level, text, cure):
    finding = only(replace(healthy, **facts))
    assert (finding.name, finding.level) == (name, level)
    assert finding.text.startswith(text)
    assert finding.cure.startswith(cure)


@pytest.mark.parametrize("facts", HARMLESS, ids=str)
def test_a_fact_without_a_finding(healthy, facts):
    assert found(replace(healthy, **facts)) == {}


def test_the_facts_of_this_machine():
    machine = gather()
    assert 1 <= machine.cores <= machine.allowed_cores <= machine.cpus
    assert machine.memory > 0
    assert 0 < machine.descriptors < machine.descriptor_limit <= machine.hard_descriptor_limit
    assert machine.numpy[0].isdigit()
    assert machine.start_method in ("fork", "forkserver", "spawn")
    assert all(decoder.version for decoder in machine.decoders if not decoder.error)


# -- cores -------------------------------------------------------------------------------------------------------------


def test_a_quota_of_the_container_and_its_cure(tmp_path, monkeypatch, healthy):
    (tmp_path / "own").write_text("0::/\n3:cpu,cpuacct:/\n")
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    limited = gather(tmp_path / "own", tmp_path)
    assert (limited.cpu_quota, limited.cores) == (1.0, 1)
    machine = replace(healthy, cpu_quota=1.0, cores=1, variables=limited.variables)
    finding = found(machine, Needs(1))["cores"]
    assert finding.level == "warning"
    assert "a CPU quota allows 1 core of 8, but libraries start 8 threads each" in finding.text
    name, value = re.search(r"export (\w+)=(\d+)", finding.cure).groups()
    monkeypatch.setenv(name, value)
    cured = replace(machine, variables=gather(tmp_path / "own", tmp_path).variables)
    assert found(cured, Needs(1))["cores"].level == "note"  # only that one core is few
    assert found(replace(cured, cpu_quota=8.0, cores=8)) == {}


@pytest.mark.spawn
def test_the_cure_of_a_quota_limits_the_threads_of_numpy():
    """NumPy starts no thread besides the main thread; it starts one for each further core otherwise."""
    code = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("quota", "variables", "level"),
    [
        (1.5, {"OMP_NUM_THREADS": "2"}, None),
        (1.5, {"OMP_NUM_THREADS": "2,1"}, None),
        (1.5, {"OMP_NUM_THREADS": "8"}, "warning"),
        (1.5, {"OPENBLAS_NUM_THREADS": "1"}, "warning"),
        (8.0, {}, None),
        (16.0, {}, None),
    ],
)
def test_quotas_and_threads(healthy, quota, variables, level):
    machine = replace(healthy, cpu_quota=quota, cores=min(8, -int(-quota // 1)), variables=variables)
    finding = found(machine, Needs(1)).get("cores")
    assert (finding and finding.level) == level


def test_more_worker_processes_than_cores(healthy):
    assert "16 worker processes on 8 cores" in only(healthy, Needs(16)).text
    assert only(healthy, Needs(16)).cure == "num_workers=8 or 'auto'"
    both = machine_findings(replace(healthy, cpu_quota=2.0, cores=2), LOADER)
    assert [finding.level for finding in both if finding.name == "cores"] == ["warning", "warning"]
    assert found(healthy, Needs(8)) == {}
    assert found(healthy, Needs(16, waits=True)) == {}
    assert found(healthy, Needs(16, processes=False)) == {}


# -- memory and /dev/shm -----------------------------------------------------------------------------------------------


def test_memory_for_the_batches_in_flight(healthy):
    assert found(healthy, Needs(4, window=16, batch_bytes=100 * MB)) == {}
    many = only(healthy, Needs(4, window=16, batch_bytes=GB))
    assert (many.level, "need 18 GB" in many.text) == ("warning", True)
    assert only(healthy, Needs(4, window=16, batch_bytes=20 * GB)).level == "problem"
    assert found(healthy, Needs(4, window=16, batch_bytes=GB, memory_limit=4 * GB)) == {}
    assert found(healthy, Needs(0, batch_bytes=GB)) == {}
    assert only(replace(healthy, memory=512 * MB, memory_limit=GB), Needs(0)).level == "note"


def test_a_memory_limit_below_one_batch_and_its_cure(healthy):
    needs = Needs(4, window=16, batch_bytes=100 * MB, memory_limit=64 * MB)
    finding = only(healthy, needs)
    assert (finding.level, finding.text) == ("problem", "a batch takes 100 MB, but memory_limit is 64 MB")
    megabytes = int(re.search(r"memory_limit='(\d+)MB'", finding.cure)[1])
    assert found(healthy, replace(needs, memory_limit=megabytes * MB)) == {}


def test_without_anonymous_files_batches_lie_in_the_shared_folder(healthy):
    machine = replace(healthy, anonymous_files=False, shared_folder=SharedFolder(2 * GB, 10 * MB, ""))
    assert only(machine).level == "problem"
    assert found(machine, replace(LOADER, batch_bytes=100_000)) == {}


# -- descriptors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "workers", "level"),
    [
        (64, 1, "warning"),
        (64, 16, "problem"),
        (100, 8, "warning"),
        (512, 8, "note"),
        (1024, 8, None),
        (64, 0, "warning"),
    ],
)
def test_descriptors(healthy, limit, workers, level):
    finding = found(replace(healthy, descriptor_limit=limit), Needs(workers, window=4 * workers)).get("descriptors")
    assert (finding and finding.level) == level
    if finding:
        enough = int(re.search(r"ulimit -n (\d+)", finding.cure)[1])
        cured = replace(healthy, descriptor_limit=enough)
        assert "descriptors" not in found(cured, Needs(workers, window=4 * workers))


def test_fewer_workers_if_the_hard_limit_is_low(healthy):
    machine = replace(healthy, descriptor_limit=64, hard_descriptor_limit=64)
    finding = found(machine, Needs(16, window=64))["descriptors"]
    assert (finding.level, "workers cannot start" in finding.text) == ("problem", True)
    workers = int(re.search(r"num_workers=(\d+)", finding.cure)[1])
    assert found(machine, Needs(workers, window=4 * workers))["descriptors"].level != "problem"
    assert "--ulimit nofile=" in finding.cure


@pytest.mark.spawn
@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_as_many_descriptors_as_the_doctor_says_are_needed(start_method):
    """With the smaller number a loader works; with one less it raises an error."""
    code = """
import os, resource, sys
import numpy as np
from gluonloader import DataLoader
from gluonloader.tools.doctor.machine_findings import Needs, machine_findings
from gluonloader.tools.doctor.machine import gather

def load(most):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        with DataLoader(np.arange(60.0), 10, num_workers=3, start_method=start_method) as loader:
            print(sum(batch.sum() for batch in loader), flush=True)
    except Exception as error:
        print(error, flush=True)

if __name__ == "__main__":
    start_method = sys.argv[1]
    findings = {f.name: f for f in machine_findings(gather(), Needs(3, start_method == "fork", window=12))}
    least = int(findings["descriptors"].text.split(" need ")[1].split(" to ")[0])
    before = len(os.listdir("/proc/self/fd")) - 1
    for more in (0, -1):  # each in a process without descriptors of an earlier loader
        if not os.fork():
            load(before + least + more)
            sys.exit()
        os.wait()
"""
    done = run_program(code, start_method, seconds=600)
    works, fails = done.stdout.splitlines()
    assert works == "1770.0", (works, done.stderr)
    assert "Too many open files" in fails


# -- threads, libraries, settings --------------------------------------------------------------------------------------


def test_threads_of_python_are_named(healthy):
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="reader of the user")
    thread.start()
    try:
        threads = gather().threads
    finally:
        end.set()
        thread.join()
    assert "reader of the user" in threads.python
    own = tuple(name for name in threads.python if name == "reader of the user")  # other tests may have left some
    finding = only(replace(healthy, threads=ProcessThreads(python=own)))
    assert (finding.name, finding.level) == ("threads", "note")
    assert "reader of the user (of Python)" in finding.text


@pytest.mark.parametrize("library", ["OpenCV", "Polars"])
def test_libraries_that_are_not_prepared_for_a_fork(healthy, library):
    machine = replace(healthy, threads=ProcessThreads(native=(("python", 3),), library=library, candidates=("cv2",)))
    finding = only(machine)
    assert (finding.level, finding.text.startswith(f"{library} has threads")) == ("warning", True)
    assert "start_method='forkserver'" in finding.cure
    assert only(machine, replace(LOADER, forks=False)).level == "note"


def test_threads_of_unknown_libraries(healthy):
    threads = ProcessThreads(end_at_fork=1, native=(("jemalloc_bg_thd", 1), ("python", 2)), candidates=("pyarrow",))
    text = only(replace(healthy, threads=threads)).text
    assert text == "alive before a fork: 1 x jemalloc_bg_thd, 2 x python (perhaps of pyarrow)"
    assert found(replace(healthy, threads=threads), replace(LOADER, forks=False)) == {}
    many = ProcessThreads(native=tuple((f"thread {number}", 1) for number in range(9)))
    assert only(replace(healthy, threads=many)).text.endswith("1 x thread 3 and 5 more")


FAULTS = """
import resource
import numpy as np
from gluonloader.memory.warm import LARGEST_IN_WORKER, keep_freed_memory

keep_freed_memory(LARGEST_IN_WORKER)
def sample():
    pixels = np.ones((375, 500, 3), np.uint8).astype(np.float32)
    return (pixels * 2).sum()
for _ in range(5):
    sample()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    sample()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


@pytest.mark.spawn
@pytest.mark.skipif(not os.confstr("CS_GNU_LIBC_VERSION"), reason="needs glibc")
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"])
def test_the_cure_of_the_allocator_ends_the_page_faults(healthy, name):
    """The first settings are those that the finding is about; the second ones are those of its cure."""
    variables = {name: "33554432" if "MMAP" in name else "65536"}
    cure = only(replace(healthy, variables=variables)).cure
    both = dict(setting.split("=") for setting in shlex.split(cure.split("export ")[1]))
    assert faults(variables) > 200
    assert faults({**variables, **both}) < 10
    assert cure.startswith(f"unset {name};")
    assert faults({}) < 10


def faults(variables):
    """The page faults of a sample in a program with these settings."""
    return _faults(*sorted(variables.items()))


@functools.cache
def _faults(*settings):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC", "GLIBC"))}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env={**environment, **dict(settings)}, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_the_facts_fit_into_json():
    import json

    assert json.loads(json.dumps(dataclasses.asdict(gather())))["cpus"] == os.cpu_count()


def test_a_machine_without_limits(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    machine = gather()
    assert machine.file_size_limit is None
    assert "descriptors" not in found(machine)
