"""Shared by all tests: the executors that one body of tests runs over, and the check that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from interrupting import raise_alarm

import gluonloader
from gluonloader import DataLoader
from gluonloader.mxnet import patch_numpy
from gluonloader.options import Processes, Ray

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one may take its time
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)  # `nox -s core` selects it
# For tests/mutations: that an example fails is enough, so no time is spent to find a smaller one.
_PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutations", deadline=None, phases=_PHASES)
hypothesis.settings.load_profile("any machine")


def examples(count: int) -> int:
    """How many examples a test tries that asks for `count`: in the quick profile fewer of them."""
    return count * hypothesis.settings.default.max_examples // 100


@dataclass(frozen=True)
class Way:
    """One way to run a loader: an executor with a start method."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def processes(self) -> bool:
        return self.arguments.get("num_workers", 0) > 0 and not self.arguments.get("thread_pool") and self != AUTO

    @property
    def parallel(self) -> bool:
        return self.arguments.get("num_workers", 0) > 0

    @property
    def quick(self) -> bool:
        """Whether its workers start without a new interpreter."""
        return self.arguments.get("start_method") not in ("spawn", "forkserver") and not OVER_RAY

    def loader(self, dataset: Any, *args: Any, **kwargs: Any) -> DataLoader:
        return DataLoader(dataset, *args, **{"seed": 0, "timeout": 60, **self.arguments, **kwargs})

    def retrying(self, max_retries: int) -> dict[str, Any]:
        """The argument for workers that may die so often on a batch."""
        return {"executor": (Ray if self == RAY else Processes)(max_retries=max_retries)}

    def __str__(self) -> str:
        return self.name


SERIAL = Way("serial")
THREAD = Way("thread", {"num_workers": 2, "thread_pool": True})
FORK = Way("fork", {"num_workers": 2, "start_method": "fork"})
ONE_FORK = Way("fork-1", {"num_workers": 1, "start_method": "fork"})
FORKSERVER = Way("forkserver", {"num_workers": 2, "start_method": "forkserver"})
SPAWN = Way("spawn", {"num_workers": 2, "start_method": "spawn"})

AUTO = Way("auto", {"num_workers": 2, "executor": "auto"})

RAY = Way("ray", {"num_workers": 2, "executor": "ray"})

# `nox -s ray` runs the tests that run over every way over actors of Ray instead, and no other tests.
OVER_RAY = "GLUONLOADER_RAY" in os.environ
# `nox -s soak` runs them over all ways. Otherwise what depends on the start method is tested in test_start_methods.py.
OVER_ALL = "GLUONLOADER_WAYS" in os.environ
NEW_INTERPRETERS = [FORKSERVER, SPAWN]
START_METHODS = [RAY] if OVER_RAY else [FORK, *NEW_INTERPRETERS]
ANY = [RAY] if OVER_RAY else [SERIAL, THREAD, FORK]
EVERY = [*ANY, *NEW_INTERPRETERS] if OVER_ALL else ANY
WAYS = [*EVERY, ONE_FORK, AUTO] if OVER_ALL else EVERY
PROCESSES = [way for way in EVERY if way.processes]


def pytest_unconfigure() -> None:
    """Empties a cache of torch: for each entry that is left when the interpreter ends, torch prints a traceback."""
    if reductions := sys.modules.get("torch.multiprocessing.reductions"):
        reductions.shared_cache.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Collects no garbage while a report is made, which parses source code.

    A finalizer that fails makes a traceback, which parses, too; parsing within parsing is a SystemError in Python 3.11.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def ways_of(item: pytest.Item) -> list[Way]:
    """The ways over which a test runs."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [value for value in parameters if isinstance(value, Way)]


@pytest.hookimpl(tryfirst=True)  # before pytest reads the markers for -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests by the way that they run over: `spawn` for new interpreters, `slow` for ways much like others.

    Where workers are not what is tested, processes are much like threads.
    """
    if OVER_RAY:
        names = "test_ray", "[processes.md]", "test_many_nodes"
        over_ray = [item for item in items if RAY in ways_of(item) or any(name in item.nodeid for name in names)]
        kept = [item for item in over_ray if not item.get_closest_marker("local")]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    about = tuple(str(Path(__file__).with_name(part)) for part in ("executors", "memory"))
    for item in items:
        ways = ways_of(item)
        if any(not way.quick for way in ways):
            item.add_marker(pytest.mark.spawn)
        about_workers = str(item.path).startswith(about)
        if ONE_FORK in ways or AUTO in ways or (FORK in ways and not about_workers):
            item.add_marker(pytest.mark.slow)
        if OVER_ALL and any(way not in ANY for way in ways):
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session", autouse=OVER_RAY)
def one_ray() -> Iterator[None]:
    """Starts Ray once for all tests, since that takes some seconds."""
    if OVER_RAY:
        ray = importlib.import_module("ray")
        ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="error", log_to_driver=False)
        with RAY.loader(range(2), 1) as loader:  # Ray opens sockets at the first use, and keeps them
            list(loader)
        yield
        ray.shutdown()
    else:
        yield


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(params=[way for way in WAYS if way.parallel and way != AUTO], ids=str)
def parallel_way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(params=PROCESSES, ids=str)
def process_way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(params=START_METHODS, ids=str)
def start_way(request: pytest.FixtureRequest) -> Way:
    """Processes, with every start method, in each session: for what a start method can get wrong."""
    return request.param


@pytest.fixture(params=EVERY, ids=str)
def every_way(request):
    return request.param


@pytest.fixture(params=ANY, ids=str)
def any_way(request):
    return request.param


def load(name: str) -> Any:
    """A framework, without what it warns of at its import; None where it cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def load_mxnet() -> Any:
    """MXNet, on whatever NumPy; None where it is not installed."""
    patch_numpy()
    return load("mxnet")


def load_or_skip(name: str) -> Any:
    """A framework; the test is skipped where it cannot be imported."""
    framework = load_mxnet() if name == "mxnet" else load(name)
    if framework is None:
        pytest.skip(f"needs {name}")
    return framework


def modules() -> list[str]:
    """Every module of the package that can be imported here: the drop-ins need MXNet and torch."""
    frameworks = {"gluonloader.mxnet.": load_mxnet(), "gluonloader.torch.": load("torch")}
    absent = tuple(package for package, framework in frameworks.items() if framework is None)
    names = [module.name for module in pkgutil.walk_packages(gluonloader.__path__, "gluonloader.")]
    alone = ("gluonloader.mxnet.numpy_names", "gluonloader.mxnet.structure")
    return ["gluonloader", *(name for name in names if name in alone or not name.startswith(absent))]


def children() -> set[int]:
    """Live child processes of this one, except multiprocessing's own helpers, which serve the whole program."""
    found = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        try:
            found |= set(map(int, (task / "children").read_text().split()))
        except FileNotFoundError:
            continue  # the thread has ended meanwhile
    return {pid for pid in found if not _is_helper(pid)}


def is_running(pid: int) -> bool:
    """Whether a process has not ended, which may be no child of this one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_helper(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    # The fixture `one_ray` keeps the servers of Ray.
    return any(name in line for name in (b"resource_tracker", b"forkserver", b"/ray/"))


def run_program(code: str, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """A program in a new interpreter, with what it printed; it may take so many seconds."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def in_child(call: Callable[[], str]) -> str:
    """What a call returns in a forked child, or the text of its error."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                text = call()
            except BaseException as error:
                text = repr(error)
            os.write(write, text.encode())
        finally:
            os._exit(0)  # the child must not go on with the tests of its parent
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as pipe:
        return pipe.read()


def workers(loader: DataLoader) -> list[int]:
    """The pids of a loader's live workers."""
    lanes = list(crew(loader).lanes.values())  # at once: other threads call this while workers start and die
    if OVER_RAY:
        return [lane.pid for lane in lanes if lane.pid is not None and lane.death is None]
    return [lane.process.pid for lane in lanes if not lane.process.ended]


def crew(loader: DataLoader) -> Any:
    """The worker processes of a loader, and their lanes."""
    return loader.epochs.workers.executor(0).crew


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def open_files() -> list[str]:
    folder = "/proc/self/fd"
    return [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.lexists(f"{folder}/{fd}")]


def few_descriptors(before: int) -> bool:
    """Whether no more are open than before, but for three; a ThreadPool's go with it, when its last thread has ended.

    The first use of forkserver or spawn opens two pipes that stay, to the fork server and to the resource tracker. A
    long batch that this thread makes opens a file with the thread's statistics.
    """
    gc.collect()
    return descriptors() <= before + 3


@contextlib.contextmanager
def scarce_descriptors(more: int, left: int | None = None) -> Iterator[None]:
    """Within the block descriptors go no further than `more` beyond the last one; all but about `left` are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, fillers = max(map(int, os.listdir("/proc/self/fd"))) + more, list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        with contextlib.suppress(OSError):
            while left is not None and (not fillers or fillers[-1] < most - left):
                fillers.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def shared_memory() -> set[str]:
    # Ours, if there were any, would be temporary files; other programs on the machine have entries of their own.
    return {name for name in os.listdir("/dev/shm") if name.startswith("tmp")}


def mapped_slabs() -> int:
    """Mappings of this process onto memory files of ours."""
    return Path("/proc/self/maps").read_text().count("memfd:gluonloader")


def eventually(condition: Any, seconds: float = 30.0) -> bool:
    """Whether a condition comes true within some seconds: for what another process or thread is about to do."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())


@pytest.fixture(autouse=True, scope="session")
def generator_of_hypothesis() -> None:
    """Lets Hypothesis make its random generator first: it warns where the garbage collector does not show it, such as
    after `gc.freeze`, from Python 3.13 on."""
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()


@pytest.fixture(autouse=True, scope="session")
def shared_memory_of_multiprocessing() -> None:
    """Lets multiprocessing open the file of its shared values first, which stays open, so that no test opens it."""
    multiprocessing.RawValue("b")


_seen = 0  # modules that were loaded when garbage was last made quick to collect


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Many tests collect garbage; what a framework brings with its import need not be looked at each time."""
    global _seen
    if len(sys.modules) > _seen + 200:
        gc.collect()
        gc.freeze()
        _seen = len(sys.modules)


@pytest.fixture
def no_leaks() -> Any:
    """Fails the test if it leaves a process, a descriptor, a mapping or an entry in /dev/shm behind."""
    gc.collect()
    gc.freeze()  # what is alive now is not looked at again by the collections of this test
    before, files = (children(), descriptors(), mapped_slabs(), shared_memory()), Counter(open_files())
    yield
    gc.collect()
    assert eventually(lambda: children() <= before[0]), children() - before[0]
    assert eventually(lambda: mapped_slabs() <= before[2]), "mappings of slabs are left"
    assert shared_memory() <= before[3]
    assert eventually(lambda: few_descriptors(before[1])), f"opened: {dict(Counter(open_files()) - files)}"


@pytest.fixture
def alarms() -> Iterator[None]:
    """Lets SIGALRM raise `interrupting.Alarm` within the test."""
    before = signal.signal(signal.SIGALRM, raise_alarm)
    yield
    signal.signal(signal.SIGALRM, before)
