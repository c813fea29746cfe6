"""Judges the facts of a dataset and its loader: what will break, what is slow, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...describe import counted
from ...units import duration, percent, size
from .cost import Cost
from .everywhere import Everywhere
from .finding import Finding, Level
from .machine import Machine
from .machine_findings import Needs
from .padding import Padding
from .probe import LATE, DatasetFacts, ProbeOptions, TwoLoaders

_SMALL: Final = 1 << 20  # bytes; up to this size of batches a loader has two more in flight for each worker
_MUCH_WAITING: Final = 0.5  # of the time of a sample
_BUSY: Final = 0.2  # the share of the time of a sample in which it waits for a core
_SHORT_S: Final = 1e-3  # concurrency does not help samples that take less
_SLOW: Final = 10  # a slow sample takes so many times as long as a usual one,
_SLOW_S: Final = 0.1  # and so many seconds: a shorter pause of the process is no fault of the sample
_MANY_OBJECTS: Final = 50 << 20  # bytes of their pickle
_MUCH_PADDING: Final = 0.1  # of the tokens of a batch
_MANY_FAULTS: Final = 256  # for each sample; the kernel needs about 0.1 ms for so many


def needs_of(facts: DatasetFacts, machine: Machine) -> Needs:
    """What the loader needs from the machine; if it could not be made, what one with the default number needs."""
    options, cost = facts.options, facts.cost
    if options is None:
        return Needs(machine.cores, window=4 * machine.cores)
    batch_bytes = 0 if cost is None else cost.batch_bytes
    more = 0 if options.prefetch_given or batch_bytes > _SMALL else 2 * options.num_workers
    return Needs(
        workers=options.num_workers,
        forks=options.start_method == "fork",
        processes=options.executor == "process",
        window=options.prefetch + more,
        batch_bytes=batch_bytes,
        memory_limit=options.memory_limit,
        waits=cost is not None and cost.waiting > _MUCH_WAITING,
    )


def dataset_findings(facts: DatasetFacts) -> Iterator[Finding]:
    """Judges what was found out about a dataset."""
    yield from _loader(facts)
    yield from _pickle(facts)
    yield from _objects(facts)
    yield from _open_files(facts)
    if facts.cost_error == LATE:
        yield Finding("sample", "warning", LATE, "a larger --seconds, if samples are slow and do not hang")
        return
    if facts.cost_error:
        cure = "correct this error first; see docs/errors.md"
        yield Finding("sample", "problem", f"cannot be read in the main program: {facts.cost_error}", cure)
        return
    yield from _comparisons(facts)
    if facts.padding is not None:
        yield _padding(facts.padding)
    if facts.cost is not None:
        yield _sample(facts.cost)
        yield _slow_samples(facts.everywhere)
        yield from _busy_cores(facts.cost)
        yield _random_numbers(facts.cost, facts.options)


def _loader(facts: DatasetFacts) -> Iterator[Finding]:
    if facts.options is not None:
        yield Finding("loader", "ok", facts.options.text)
    elif not facts.pickle_error:
        cure = "call the factory in a program of your own to see the traceback"
        if "Too many open files" in facts.error:
            cure = "ulimit -n 1024, or a smaller num_workers"
        yield Finding("loader", "problem", f"the factory raised {facts.error}", cure)
    for text in facts.warnings:
        what, _, cure = text.rpartition("; ")
        yield Finding("loader", "warning", what or cure, cure if what else "")


def _pickle(facts: DatasetFacts) -> Iterator[Finding]:
    if facts.options is None and not facts.pickle_error:
        return
    if facts.options is not None and facts.options.executor == "ray":
        return  # it uses cloudpickle, which can pickle more
    if not facts.pickle_error:
        yield Finding("pickle", "ok", f"{size(facts.pickled_bytes)}: every start method is possible")
        return
    error, options = facts.pickle_error, facts.options
    cure = error.cure[:1].lower() + error.cure[1:]
    if not error.reason:
        yield Finding("pickle", "problem", error.text)
    elif options is None or (options.executor == "process" and options.start_method != "fork"):
        yield Finding("pickle", "problem", f"{error.needs} has to pickle {error.part}: {error.reason}", cure)
    else:
        yield Finding("pickle", "note", f"{error.part} needs start_method='fork': {error.reason}", cure)


def _objects(facts: DatasetFacts) -> Iterator[Finding]:
    options = facts.options
    if options is None or options.executor != "process" or facts.object_bytes < _MANY_OBJECTS:
        return
    copies = options.num_workers * options.ranks
    who = counted(options.num_workers, "worker", "workers")
    who += f" of each of {options.ranks} ranks" if options.ranks > 1 else ""
    text = f"more than {size(facts.object_bytes)}; each worker copies them, because reading changes reference counts: "
    cure = "arrays, or a CompactList for a list of texts or tuples"
    cure += "; or Ranks(..., share='node')" if options.ranks > 1 else ""
    yield Finding("objects", "note", f"{text}{size(copies * facts.object_bytes)} with {who}", cure)


def _open_files(facts: DatasetFacts) -> Iterator[Finding]:
    options = facts.options
    if options is None:
        return
    if options.executor == "ray" or (options.executor == "process" and options.start_method != "fork"):
        yield Finding("open files", "ok", "workers do not inherit them")
        return
    if not facts.files:
        yield Finding("open files", "ok", "none before the workers start")
        return
    moved = [file.name for file in facts.files if file.moved]
    sockets = [file.name for file in facts.files if file.is_socket]
    cure = "open it in each process: if self.pid != os.getpid(): ...; or in worker_init_fn"
    if moved:
        level: Level = "problem" if options.num_workers > 1 else "warning"
        text = f"workers share the offset of {_listed(moved)}, so their reads disturb each other"
        yield Finding("open files", level, text, cure)
    elif sockets:
        level = "warning" if options.num_workers > 1 else "note"
        text = f"{counted(len(sockets), 'socket', 'sockets')} opened before the workers start, so workers share them"
        yield Finding("open files", level, text, cure)
    else:
        names = _listed([file.name for file in facts.files])
        yield Finding("open files", "ok", f"{names}: samples do not move the offset")


def _listed(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _comparisons(facts: DatasetFacts) -> Iterator[Finding]:
    """Judges the comparisons of batches. If one of them fails, the later ones add no information."""
    same, serial, resumed = facts.same, facts.serial, facts.resumed
    if same is None:
        return
    workers = counted(same.workers, "worker", "workers")
    if same.error == LATE and facts.cost is not None and facts.cost.waiting_for_core > _BUSY:
        text = f"no batch of {workers} arrived in time, perhaps because other programs use the cores"
        yield Finding("batches", "warning", text, "stop other programs, or pass a larger --seconds")
        return
    if same.error:
        cure = "see 'threads' above; or start_method='forkserver'"
        cure += ", or a larger --seconds if workers start slowly" if same.error == LATE else ""
        text = f"the main program can make batches, but {workers} cannot: {same.error}"
        yield Finding("batches", "problem", text, cure)
        return
    if same.incomparable:
        cure = "arrays, numbers, texts or containers of these instead"
        yield Finding("batches", "note", f"not compared: {same.incomparable}", cure)
        return
    if same.difference:
        yield Finding("batches", "warning", f"two loaders with the same seed differ: {same.difference}", _cure(facts))
        return
    if same.is_late:
        text = f"{workers} made batches, but those of a second loader made none in time"
        yield Finding("batches", "warning", text, "a larger --seconds, if workers start slowly")
    else:
        text = f"the first {same.batches} are equal in two loaders with the same seed"
        given = facts.options is not None and facts.options.seed_given
        text += "" if given else "; pass seed= if all runs should have the same batches"
        yield Finding("batches", "ok", text)
    if serial is not None:
        yield _serial(serial, facts)
    if resumed is not None:
        yield _resumed(resumed)


def _cure(facts: DatasetFacts) -> str:
    if any(file.moved for file in facts.files):
        return "see 'open files' above"
    return "draw random numbers from gluonloader.get_rng(), and keep no state from one sample to the next"


def _serial(serial: TwoLoaders, facts: DatasetFacts) -> Finding:
    many, few = serial.workers, serial.other_workers
    if serial.error:
        return Finding("workers", "problem", f"with {few} workers: {serial.error}", "see docs/errors.md")
    if not serial.difference:
        return Finding("workers", "ok", f"{few} and {many} workers make equal batches")
    text = f"{few} and {many} workers make different batches: {serial.difference}"
    if facts.options is not None and facts.options.iterable:
        cure = "IterableDataset(dataset, num_shards=8), so that the order does not depend on the workers"
        return Finding("workers", "note", text, cure)
    return Finding("workers", "warning", text, _cure(facts))


def _resumed(resumed: TwoLoaders) -> Finding:
    if resumed.error:
        return Finding("resume", "problem", f"resuming failed: {resumed.error}", "see docs/exact.md")
    if resumed.difference:
        cure = "keep no state in the dataset, or give it state_dict() and load_state_dict(); see docs/exact.md"
        return Finding("resume", "problem", f"a resumed loader differs: {resumed.difference}", cure)
    return Finding("resume", "ok", f"a resumed loader delivers the same batches ({resumed.batches} compared)")


def _padding(padding: Padding) -> Finding:
    what = f"{percent(padding.share)} of the tokens in the first batches"
    if padding.share <= _MUCH_PADDING:
        return Finding("padding", "ok", what)
    cure = "method='best_fit' and a window of some thousand documents for the PackingSampler"
    if not padding.rows:
        cure = "batch_sampler=TokenBatchSampler(dataset.lengths, max_tokens), or a PackingSampler; see docs/text.md"
    return Finding("padding", "warning", what, cure)


def _sample(cost: Cost) -> Finding:
    waiting = f"{cost.waiting:.0%}".replace("%", " %")
    text = f"{duration(cost.wall_s)}, {duration(cost.cpu_s)} of CPU time ({waiting} waiting), "
    faults = counted(round(cost.page_faults), "page fault", "page faults")
    text += f"{faults}, {size(cost.batch_share)} in the batch, {size(cost.read_bytes)} read"
    if cost.waiting > _MUCH_WAITING and cost.wall_s - cost.core_wait_s > _SHORT_S:
        return Finding("sample", "note", text, "concurrency=16, if samples wait for a network or a disk")
    if cost.page_faults > _MANY_FAULTS:
        return Finding("sample", "note", text, "reuse large temporary arrays (out=...); see also 'allocator' above")
    return Finding("sample", "ok", text)


def _slow_samples(found: Everywhere | None) -> Finding:
    name, later = "slow samples", "loader.stats().slowest names the slowest batch of an epoch"
    if found is not None and found.error:
        cure = "correct it, or pass on_error='skip'; see docs/errors.md"
        return Finding(name, "problem", f"behind the first batches: {found.error}", cure)
    if found is None or not found.slowest:
        return Finding(name, "ok", f"only samples of the first batches were read; {later}")
    took, usual = duration(found.slowest_s), duration(found.usual_s)
    of = f"from everywhere in the epoch of {found.of:,}" if found.whole else f"from the first {found.of:,} of the epoch"
    read = f"{found.samples:,} samples were read, {of}"
    if found.slowest_s <= max(_SLOW_S, _SLOW * found.usual_s):
        text = f"{read}: the slowest took {took}, a usual one {usual}"
        return Finding(name, "ok", text if found.whole and found.samples == found.of else f"{text}; {later}")
    cure = f"read it alone to see why; {later}"
    if found.arrived:
        return Finding(name, "note", f"{found.slowest} took {took}, a usual sample {usual}; {read}", cure)
    return Finding(name, "warning", f"{found.slowest} had not arrived after {took}; {read}", cure)


def _busy_cores(cost: Cost) -> Iterator[Finding]:
    if cost.waiting_for_core > _BUSY:
        share, alone = percent(cost.waiting_for_core), duration(cost.wall_s - cost.core_wait_s)
        text = f"samples waited for a core {share} of the time, because other programs or threads compute"
        cure = "stop other programs while you measure"
        yield Finding("busy cores", "note", f"{text}; with a free core a sample takes {alone}", cure)


def _random_numbers(cost: Cost, options: ProbeOptions | None) -> Finding:
    if not cost.draws:
        return Finding("random numbers", "ok", "no draws from global generators")
    text = f"drawn from {' and '.join(cost.draws)}"
    cure = "draw from gluonloader.get_rng() instead"
    if options is not None and (options.executor == "thread" or options.concurrency > 1):
        return Finding("random numbers", "warning", f"{text}, which threads share: they differ from run to run", cure)
    return Finding("random numbers", "note", f"{text}: repeatable in worker processes, but not in threads", cure)
