"""The findings of `doctor` about a dataset: each kind of bad dataset is found, and the cures work."""

import collections
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gluonloader import CompactList, DataLoader, IterableDataset, Pad, get_rng
from gluonloader.progress import ProgressBar
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenBatchSampler, TokenDataset
from gluonloader.tools.doctor.cost import Cost
from gluonloader.tools.doctor.dataset_findings import dataset_findings, needs_of
from gluonloader.tools.doctor.everywhere import Everywhere
from gluonloader.tools.doctor.machine import gather
from gluonloader.tools.doctor.machine_findings import machine_findings
from gluonloader.tools.doctor.open_files import open_files
from gluonloader.tools.doctor.probe import LATE, Prober, TwoLoaders, configure
from gluonloader.tools.doctor.time_limit import OutOfTime
from gluonloader.tools.factory import FactoryError, checked

pytestmark = pytest.mark.usefixtures("no_leaks")

GOOD = {"loader", "pickle", "open files", "batches", "workers", "resume", "sample", "slow samples", "random numbers"}


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return index


def factory(dataset, **defaults):
    """`defaults` are arguments that the factory passes unless the doctor passes others."""

    def make(**options):
        return DataLoader(dataset, 4, **{"num_workers": 2, "start_method": "fork", **defaults, **options})

    return make


def examined(dataset, seconds=240.0, before=None, **defaults):
    """The facts about a dataset; only a dataset that hangs takes so many seconds."""
    return examine(factory(dataset, **defaults), seconds, before)


def configured(dataset, **defaults):
    """The facts that are known before any batch is read."""
    return configure(factory(dataset, **defaults), open_files()).facts


def examine(make, seconds=240.0, before=None):
    first = configure(make, open_files() if before is None else before)
    if first.loader is None:
        return first.facts
    with ProgressBar(1, "batches") as progress:
        return Prober(make, seconds, progress).examine(first.loader, first.facts)


def found(facts, pickles=False):
    """The findings that are not "ok", by their name.

    Without the note that the class of a test cannot be pickled, and the note that other programs use the cores.
    """
    findings = {finding.name: finding for finding in dataset_findings(facts) if finding.level != "ok"}
    findings.pop("busy cores", None)
    if not pickles and "pickle" in findings and findings["pickle"].level == "note":
        del findings["pickle"]
    return findings


def only(facts, pickles=False):
    findings = found(facts, pickles)
    assert len(findings) == 1, findings
    return next(iter(findings.values()))


SERIAL, THREADS = {"num_workers": 0, "start_method": None}, {"executor": "thread", "start_method": None}


@pytest.mark.parametrize("defaults", [{}, SERIAL, THREADS], ids=["fork", "serial", "threads"])
def test_a_good_dataset(defaults):
    facts = examined(Numbers(), **defaults)
    assert found(facts, pickles=True) == {}
    assert {finding.name for finding in dataset_findings(facts)} - {"busy cores"} == GOOD
    assert (facts.same.batches, facts.serial.batches, facts.resumed.batches) == (8, 8, 4)
    compared = [(pair.workers, pair.other_workers) for pair in (facts.same, facts.serial, facts.resumed)]
    assert compared == [(2, 2), (2, 0), (0, 0)]


def test_random_numbers_from_get_rng_are_good():
    class Noisy(Numbers):
        def __getitem__(self, index):
            return get_rng().random()

    assert found(examined(Noisy())) == {}


# -- pickles -----------------------------------------------------------------------------------------------------------


class Doubled(Numbers):
    """A dataset whose function is at the top level of a module, as the cure says."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, index):
        return self.function(index)


def test_a_dataset_that_does_not_pickle_and_the_cures():
    """The factory fixes the start method. tests/tools/test_doctor.py follows the cure with workers that are spawned."""

    def fixed(**options):
        return DataLoader(Doubled(lambda index: index), 4, start_method="spawn", **options)

    finding = only(examine(checked("fixed", fixed)))
    assert (finding.name, finding.level) == ("pickle", "problem")
    assert "lambda" in finding.text
    assert finding.text.startswith("start_method='spawn' has to pickle dataset.function: Can't ")
    assert finding.cure == "define its functions and classes at the top level of a module, or use start_method='fork'"
    cured = configured(Doubled(float), start_method="spawn")
    assert (cured.pickle_error, cured.pickled_bytes > 0, found(cured)) == (None, True, {})
    forked = configured(Doubled(lambda index: 2 * index), start_method="fork")
    assert only(forked, pickles=True).level == "note"


def test_a_factory_with_a_fixed_start_method_and_a_good_dataset():
    def fixed(**options):
        return DataLoader(Numbers(), 4, start_method="fork", **options)

    facts = examine(checked("fixed", fixed))
    assert found(facts) == {}
    assert (facts.serial.workers, facts.serial.other_workers) == (2, 1)


class Locked(Numbers):
    def __init__(self):
        self.lock = threading.Lock()


class Unlocked(Locked):
    """Does what the cure says."""

    def __getstate__(self):
        return {**vars(self), "lock": None}


class Counting(Numbers):
    """Its counter is shared by all processes, with every start method."""

    def __init__(self):
        self.count = multiprocessing.get_context("spawn").Value("i", 0)


def test_a_dataset_with_a_value_that_processes_share():
    assert found(examined(Counting()), pickles=True) == {}


def test_a_dataset_with_a_lock_and_its_cure():
    assert found(examined(Unlocked()), pickles=True) == {}
    finding = only(examined(Locked()), pickles=True)
    assert (finding.name, finding.level) == ("pickle", "note")
    assert finding.text == "dataset.lock needs start_method='fork': cannot pickle '_thread.lock' object"
    assert "__getstate__" in finding.cure


class Listed(Numbers):
    """Many objects, each with a text of its own."""

    def __init__(self, texts):
        self.texts = texts


def test_many_objects_and_their_cures(monkeypatch):
    texts = [f"/data/images/{number:060}.jpeg" for number in range(700_000)]
    finding = only(configured(Listed(texts)))
    assert (finding.name, finding.level) == ("objects", "note")
    assert re.search("more than 5. MB; each worker copies them.*: 1.. MB with 2 workers$", finding.text)
    assert finding.cure == "arrays, or a CompactList for a list of texts or tuples"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    finding = only(configured(Listed(texts)))
    assert re.search(": 8.. MB with 2 workers of each of 8 ranks$", finding.text)
    assert finding.cure.endswith("; or Ranks(..., share='node')")
    assert found(configured(Listed(CompactList(texts)))) == {}


# -- open files --------------------------------------------------------------------------------------------------------


class Lines(Numbers):
    """Reads lines of 8 bytes from a file that stays open, without a buffer."""

    def __init__(self, path):
        path.write_text("".join(f"{line:07d}\n" for line in range(64)))
        self.path, self.pid, self.file = path, None, None

    def __getstate__(self):
        return {**vars(self), "file": None, "pid": None}

    def open(self):
        self.pid, self.file = os.getpid(), open(self.path, "rb", buffering=0)

    def __getitem__(self, index):
        self.file.seek(8 * index)
        return int(self.file.read(8))


def test_a_file_whose_offset_workers_share_and_its_cure(tmp_path):
    before, bad = open_files(), Lines(tmp_path / "lines")
    bad.open()
    facts = examined(bad, before=before)
    findings = found(facts)
    bad.file.close()
    assert findings["open files"].level == "problem"
    for others in ({"executor": "ray"}, {"start_method": "spawn"}):  # whose workers open it again
        assert "open files" not in found(replace(facts, options=replace(facts.options, **others)))
    assert str(tmp_path / "lines") in findings["open files"].text
    assert findings["open files"].cure.startswith("open it in each process: if self.pid != os.getpid()")

    class Cured(Lines):
        def __getitem__(self, index):
            if self.pid != os.getpid():
                self.open()
            return super().__getitem__(index)

    cured = Cured(tmp_path / "lines")
    assert "open files" not in found(examined(cured))
    cured.file.close()


def test_files_that_are_mapped_or_read_at_an_offset_are_good(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(64.0))

    class Positional(Lines):
        def __getitem__(self, index):
            return int(os.pread(self.file.fileno(), 8, 8 * index))

    before, dataset = open_files(), Positional(tmp_path / "lines")
    dataset.mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    dataset.open()
    with open(tmp_path / "log", "w") as log:  # is only written
        facts = examined(dataset, before=before)
        log.write("end")
    dataset.file.close()
    assert found(facts) == {}
    names = {os.path.basename(file.name) for file in facts.files}
    assert "lines" in names
    assert "log" not in names


def test_a_file_that_was_open_before_is_not_the_datasets(tmp_path):
    with open(__file__, "rb") as other:
        other.read(10)
        assert examined(Numbers()).files == ()


def test_a_connection(tmp_path):
    class Connected(Numbers):
        def __init__(self):
            self.socket, self.other = socket.socketpair()

        def __reduce__(self):
            return Numbers, ()

    before, dataset = open_files(), Connected()
    finding = only(examined(dataset, before=before))
    for end in (dataset.socket, dataset.other):
        end.close()
    assert (finding.name, finding.level) == ("open files", "warning")
    assert finding.text.startswith("2 sockets opened before the workers start")


# -- equal batches -----------------------------------------------------------------------------------------------------


def test_samples_that_differ_in_each_run():
    class Unseeded(Numbers):
        def __getitem__(self, index):
            return np.random.default_rng().random()

    finding = only(examined(Unseeded()))
    assert (finding.name, finding.level) == ("batches", "warning")
    assert "batch 0: element [0]" in finding.text
    assert "get_rng()" in finding.cure


def test_batches_that_cannot_be_compared():
    def in_deque(samples):
        return collections.deque([np.array(samples)])

    def make(**options):
        return DataLoader(range(40), 4, batchify_fn=in_deque, **options)

    finding = only(examine(checked("make", make)))
    assert (finding.name, finding.level) == ("batches", "note")
    assert finding.text.startswith("not compared: the batch: two objects of deque cannot be compared")


def test_samples_that_depend_on_the_samples_before_them():
    class Counting(Numbers):
        count = 0

        def __getitem__(self, index):
            self.count += 1
            return self.count

    findings = found(examined(Counting()))
    assert {"batches", "workers"} & findings.keys()  # it depends on which worker makes which batch


def test_an_epoch_that_has_other_batches_in_the_second_loader():
    class Shrinking(Numbers):
        length = 40

        def __len__(self):
            self.length -= 4
            return max(8, self.length)

    dataset = Shrinking()
    while len(dataset) > 24:
        pass
    assert "batches, expected" in found(examined(dataset))["batches"].text


def test_an_iterable_dataset_whose_order_depends_on_the_workers_and_the_cure():
    class Sharded(IterableDataset):
        def __init__(self):
            pass

        def shard(self, num_shards, index):
            yield from range(index, 64, num_shards)

    bad = only(examined(Sharded()))
    assert (bad.name, bad.level) == ("workers", "note")
    assert "num_shards=8" in bad.cure
    assert found(examined(IterableDataset(Sharded(), num_shards=8))) == {}


def test_a_short_dataset():
    facts = examined(range(3))
    assert found(facts) == {}
    assert (facts.same.batches, facts.resumed) == (1, None)


def test_an_empty_dataset():
    finding = only(examined([]))
    assert (finding.name, finding.level) == ("sample", "problem")
    assert "the loader yields no batch" in finding.text


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_sample_that_raises_an_error():
    class Raising(Numbers):
        def __getitem__(self, index):
            raise OSError("no file 3.jpg")

    finding = only(examined(Raising()))
    assert (finding.name, finding.level) == ("sample", "problem")
    assert "OSError: no file 3.jpg; gluonloader: in dataset[0]" in finding.text


def test_a_sample_that_kills_only_workers():
    main = os.getpid()

    class Killing(Numbers):
        def __getitem__(self, index):
            if os.getpid() != main:
                os._exit(7)
            return index

    finding = only(examined(Killing()))
    assert (finding.name, finding.level) == ("batches", "problem")
    assert "WorkerDied" in finding.text
    assert "exit code 7" in finding.text


def test_a_sample_that_hangs_is_interrupted():
    class Hanging(Numbers):
        def __getitem__(self, index):
            while True:
                try:
                    time.sleep(1000)
                except Exception:
                    pass

    finding = only(examined(Hanging(), seconds=0.5))
    assert (finding.name, finding.level, finding.text) == ("sample", "warning", "no batch arrived in time")
    assert "--seconds" in finding.cure


COST = Cost(
    samples=4, batch_bytes=32, wall_s=1e-5, cpu_s=1e-5, core_wait_s=0.0, page_faults=0.0, batch_share=8.0,
    read_bytes=0.0, draws=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def good():
    """The facts of a good dataset on an idle machine."""
    return replace(configured(Numbers()), cost=COST)


def test_a_sample_that_hangs_only_in_workers(good):
    late = replace(good, same=TwoLoaders(2, 2, 0, error=LATE))
    finding = only(late)
    assert (finding.name, finding.level) == ("batches", "problem")
    assert "the main program can make batches, but 2 workers cannot: no batch arrived in time" in finding.text
    assert "forkserver" in finding.cure
    busy = only(replace(late, cost=replace(COST, wall_s=1e-4, core_wait_s=9e-5)))
    assert (busy.name, busy.level) == ("batches", "warning")
    assert "other programs use the cores" in busy.text


class Slow(Numbers):
    """A dataset whose samples from `first` on do not arrive in time in the process of the doctor."""

    def __init__(self, first):
        self.first, self.main = first, os.getpid()

    def __getitem__(self, index):
        if os.getpid() == self.main and index >= self.first:
            signal.raise_signal(signal.SIGALRM)  # as if the time was over
        return index


def test_slow_samples_are_compared_as_far_as_the_time_allows():
    facts = examined(Slow(12))
    assert (facts.same.batches, facts.serial.batches, facts.serial.difference) == (8, 3, "")
    assert {finding.name for finding in dataset_findings(facts) if finding.level in ("warning", "problem")} == set()


def test_samples_that_never_arrive_in_the_main_program():
    finding = only(examined(Slow(0)))
    assert (finding.name, finding.level, finding.text) == ("sample", "warning", "no batch arrived in time")


def test_workers_of_a_second_loader_that_start_slowly_are_no_problem():
    """The workers of the first loader have made batches."""
    made = []

    class Late:
        def __len__(self):
            return 64

        def __iter__(self):
            raise OutOfTime

    def make(**options):
        made.append(options.get("num_workers"))
        is_second = made[-1] == 2 and made.count(2) == 2
        return factory(Numbers(), **({"sampler": Late()} if is_second else {}))(**options)

    facts = examine(make)
    finding = only(facts)
    assert (finding.name, finding.level) == ("batches", "warning")
    assert finding.text == "2 workers made batches, but those of a second loader made none in time"
    assert (facts.serial.batches, facts.resumed.batches) == (8, 4)


def test_an_error_of_the_factory():
    def make(**options):
        raise RuntimeError("no folder /data")

    finding = only(examine(make))
    assert (finding.name, finding.level) == ("loader", "problem")
    assert finding.text == "the factory raised RuntimeError: no folder /data"


def test_a_factory_that_breaks_its_contract_is_no_finding():
    def make(**options):
        raise FactoryError("wrong")

    with pytest.raises(FactoryError, match="wrong"):
        configure(make, ())


def test_warnings_of_the_library_become_findings():
    workers = 8 * (os.cpu_count() or 1) + 1
    configured = configure(lambda **options: DataLoader(range(8), 4, **{"num_workers": workers, **options}), ())
    finding = found(configured.facts)["loader"]
    assert finding.level == "warning"
    assert finding.text.startswith(f"num_workers={workers}: more than 8 worker processes per core")
    assert finding.cure.startswith("pass num_workers=")


# -- costs -------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_sample(tmp_path):
    class Reading(Lines):
        def __getitem__(self, index):
            with open(self.path, "rb", buffering=0) as file:
                file.read(512)
            return np.zeros(25_000, np.float32)

    cost = examined(Reading(tmp_path / "lines")).cost
    assert cost.samples > 0
    assert (cost.batch_bytes, cost.batch_share) == (400_000, 100_000)
    assert 512 <= cost.read_bytes < 1000
    assert 0 < cost.cpu_s <= cost.wall_s * 64
    assert cost.draws == ()


def test_samples_that_wait():
    class Waiting(Numbers):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            time.sleep(0.03)
            return index

    facts = examined(Waiting())
    cost = facts.cost
    assert cost.wall_s > 0.03 * 0.99
    assert cost.waiting * cost.wall_s > 0.02  # the rest of the time is for copies of a core's state, and for the core


def test_how_the_cost_of_a_sample_is_judged(good):
    def judged(**changes):
        return replace(good, cost=replace(COST, **changes))

    waits = judged(wall_s=0.02, cpu_s=1e-4)
    finding = only(waits)
    assert (finding.name, finding.level, "concurrency=16" in finding.cure) == ("sample", "note", True)
    assert "20 ms, 100 us of CPU time (100 % waiting)" in finding.text or "99 % waiting" in finding.text
    assert needs_of(waits, gather()).waits
    assert found(judged(wall_s=5e-4, cpu_s=1e-5)) == {}  # so short that threads do not help
    faults = only(judged(page_faults=1000.0))
    assert (faults.name, faults.level, "out=" in faults.cure) == ("sample", "note", True)


def test_waiting_for_a_core_is_no_waiting_of_the_sample(good):
    """As on a machine with a load average of 20."""
    busy = replace(good, cost=replace(COST, wall_s=0.02, cpu_s=1e-4, core_wait_s=0.0198))
    assert found(busy) == {}  # it leaves out the note below
    assert not needs_of(busy, gather()).waits
    findings = {finding.name: finding for finding in dataset_findings(busy)}
    assert "(0 % waiting)" in findings["sample"].text or "(1 % waiting)" in findings["sample"].text
    note = findings["busy cores"]
    assert (note.level, note.cure) == ("note", "stop other programs while you measure")
    assert note.text.startswith("samples waited for a core 99 % of the time, because other programs or threads compute")
    assert note.text.endswith("with a free core a sample takes 200 us")
    assert "busy cores" not in {finding.name for finding in dataset_findings(good)}


# -- slow samples ------------------------------------------------------------------------------------------------------


class OneSlow(Numbers):
    """Calls a function for sample 50, which is not in the first 8 batches."""

    def __init__(self, function):
        self.function, self.main = function, os.getpid()

    def __getitem__(self, index):
        if index == 50 and os.getpid() == self.main:
            self.function()
        return index


LATER = "loader.stats().slowest names the slowest batch of an epoch"


@pytest.mark.parametrize("defaults", [{}, {"shuffle": True, "seed": 3}], ids=str)
def test_a_slow_sample_is_found_wherever_it_is(defaults):
    facts = examined(OneSlow(partial(time.sleep, 0.3)), **defaults)
    assert (facts.everywhere.samples, facts.everywhere.of) == (64, 64)
    finding = found(facts)["slow samples"]
    assert finding.level == "note"
    assert re.match(
        r"dataset\[50\] took \d+ ms, a usual sample .*; 64 samples were read, from everywhere in the epoch of 64",
        finding.text,
    )
    assert finding.cure == f"read it alone to see why; {LATER}"


def test_a_sample_behind_the_first_batches_that_hangs_is_interrupted_and_named():
    def hang():
        time.sleep(0.2)
        signal.raise_signal(signal.SIGALRM)  # as if the time was over

    finding = only(examined(OneSlow(hang)))
    assert (finding.name, finding.level) == ("slow samples", "warning")
    assert finding.text.startswith("dataset[50] had not arrived after 2")
    assert finding.cure.endswith(LATER)


def test_a_sample_that_is_interrupted_when_it_has_hardly_started_is_not_slow():
    facts = examined(OneSlow(partial(signal.raise_signal, signal.SIGALRM)))
    assert found(facts) == {}


def test_a_sample_behind_the_first_batches_that_raises_an_error():
    def fail():
        raise OSError("no file 50.jpg")

    finding = only(examined(OneSlow(fail)))
    assert (finding.name, finding.level) == ("slow samples", "problem")
    text = "behind the first batches: OSError: no file 50.jpg; gluonloader: in dataset[50], batch 12 of epoch 0"
    assert finding.text == text
    assert finding.cure == "correct it, or pass on_error='skip'; see docs/errors.md"
    assert found(examined(OneSlow(fail), on_error="skip")) == {}


def test_samples_are_read_by_the_keys_of_the_sampler():
    keys = [f"{number}.jpg" for number in range(64)]
    slow = {key: 0.3 * (key == "50.jpg") for key in keys}

    class Named:
        def __getitem__(self, key):
            time.sleep(slow[key])
            return 0

    assert only(examined(Named(), sampler=keys)).text.startswith("dataset['50.jpg'] took 3")


def test_a_sampler_without_end():
    class Endless:
        def __iter__(self):
            while True:
                yield from ([number, number + 1] for number in range(60))

    def make(**options):
        return DataLoader(Numbers(), batch_sampler=Endless(), **options)

    facts = examine(make, seconds=4)
    assert (facts.everywhere.whole, facts.everywhere.samples > 100) == (False, True)
    assert found(facts) == {}


def test_what_is_said_if_slow_samples_could_be_missed(good):
    def judged(everywhere):
        (finding,) = (f for f in dataset_findings(replace(good, everywhere=everywhere)) if f.name == "slow samples")
        assert finding.level == "ok"
        return finding.text

    some = Everywhere(500, 9000, usual_s=0.001, slowest_s=0.009, slowest="dataset[3]")
    times = "the slowest took 9 ms, a usual one 1 ms"
    assert judged(some) == f"500 samples were read, from everywhere in the epoch of 9,000: {times}; {LATER}"
    first = f"500 samples were read, from the first 500 of the epoch: {times}; {LATER}"
    assert judged(replace(some, of=500, whole=False)) == first
    assert judged(replace(some, of=500)) == f"500 samples were read, from everywhere in the epoch of 500: {times}"
    for nothing in (None, Everywhere()):  # an iterable dataset; a sampler that took all the time
        assert judged(nothing) == f"only samples of the first batches were read; {LATER}"


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda self: np.random.random(), "`numpy.random`"),
        (lambda self: self.rng.random(), "a generator of the dataset"),
    ],
)
def test_draws_from_shared_generators_and_the_cure(draw, name):
    class Noisy(Numbers):
        def __init__(self):
            self.rng = np.random.default_rng(3)

        def __getitem__(self, index):
            return draw(self)

    finding = only(examined(Noisy()))
    assert (finding.name, finding.level, name in finding.text) == ("random numbers", "note", True)
    assert "get_rng()" in finding.cure
    with_threads = found(examined(Noisy(), **THREADS))
    assert with_threads["random numbers"].level == "warning"


def test_bulk_reads_async_datasets_and_worker_init_fn():
    class Bulk(Numbers):
        def __getitems__(self, indices):
            return [np.float32(self.scale * index) for index in indices]

    class Awaited(Numbers):
        async def __getitem__(self, index):
            return index

    def init(info):
        info.dataset.scale = 2

    for dataset in (Bulk(), Awaited()):
        facts = examined(dataset, worker_init_fn=init)
        assert found(facts) == {}
        assert facts.cost.batch_bytes in (16, 32)


def test_what_the_loader_needs():
    def needs(cost=COST, **defaults):
        return needs_of(replace(configured(Numbers(), **defaults), cost=cost), machine)

    machine = gather()
    small = needs()
    assert (small.workers, small.forks, small.processes, small.window, small.batch_bytes) == (2, True, True, 8, 32)
    assert needs(prefetch=3, memory_limit="2MB").window == 3
    large = needs(replace(COST, batch_bytes=4 << 20))
    assert (large.window, large.batch_bytes) == (4, 4 << 20)
    assert needs(**SERIAL).workers == 0
    text = next(finding.text for finding in machine_findings(machine, large) if finding.name == "memory")
    assert "batches need 24 MB of shared memory (4 MB each); " in text


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_padded_documents_and_the_cures():
    data = TokenDataset([np.ones(length, np.uint16) for length in [60, 40] * 100])
    plain = {"batchify_fn": Pad(), "shuffle": True, "seed": 0}
    finding = only(examined(data, **plain))
    assert (finding.name, finding.level) == ("padding", "warning")
    assert "TokenBatchSampler(dataset.lengths, max_tokens)" in finding.cure

    def budget(**options):
        sampler = TokenBatchSampler(data.lengths, 500, seed=0)
        return DataLoader(data, batch_sampler=sampler, batchify_fn=Pad(), **options)

    def rows(method, **options):
        sampler = PackingSampler(data.lengths, 100, method=method, seed=0)
        return DataLoader(PackedDataset(data), 4, sampler=sampler, batchify_fn=PackRows(), **options)

    assert found(examine(budget)) == {}
    assert found(examine(partial(rows, "best_fit"))) == {}
    finding = only(examine(partial(rows, "in_order")))
    assert (finding.name, finding.level) == ("padding", "warning")
    assert "method='best_fit'" in finding.cure
