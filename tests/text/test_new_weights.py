"""New weights of a mixture under windows: random programs of batches, new weights, flushes, states and ranks.

The model: each source is read in the order 0, 1, 2, ... So whatever a program does, the documents of a source that it
gets in an epoch are the first ones of the source, each once. And if all ranks flush after each change, then the program
gets what a program gets that neither saves nor loads a state, and that has one rank.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pytest
from conftest import SERIAL, THREAD
from samples import Keys

from gluonloader import MixtureSampler, Ranks, merge_states
from gluonloader.text import PackingSampler, TokenBatchSampler

SIZES = [700, 700, 700]
DRAWN = 600  # documents of an epoch, so that no source is read twice
PROGRAMS = int(os.environ.get("GLUONLOADER_RESUMES", "200")) // 10
WEIGHTS = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 2, 3])
ROUND = 12  # batches; a multiple of all numbers of ranks, so that as many are delivered however many ranks there are


@dataclass(frozen=True)
class Step:
    """What a program does after some rounds of batches.

    Args:
        ranks: how many ranks load a state that is saved here; None: no state is saved.
        late: the weights are set after the state was loaded, before the first batch.
    """

    rounds: int
    weights: list | None
    ranks: int | None
    late: bool


def steps_of(seed):
    draw = random.Random(seed)
    return [
        Step(draw.randrange(4), draw.choice([None, *WEIGHTS]), draw.choice([None, 1, 2, 3, 4]), draw.random() < 0.5)
        for _ in range(draw.randrange(1, 6))
    ]


@dataclass
class Program:
    """Loaders of several ranks that go in step.

    Args:
        kind: of the sampler.
        window: of the sampler.
        way: of the loaders.
        flush: whether to flush after new weights.
    """

    kind: str
    window: int
    way: object
    flush: bool
    got: list = field(default_factory=list)
    loaders: list = field(default_factory=list)
    iterators: list | None = None

    def open(self, ranks):
        self.loaders = [self._loader(Ranks(rank, ranks, "drop")) for rank in range(ranks)]
        self.iterators = None

    def _loader(self, ranks):
        sources = [Corpus(part) for part in np.split(LENGTHS, np.cumsum(SIZES)[:-1])]
        orders = [range(size) for size in SIZES]
        mixture = MixtureSampler(sources, [3, 2, 1], unit="tokens", num_samples=DRAWN, samplers=orders, seed=0)
        if self.kind == "batches":
            batches = TokenBatchSampler(LENGTHS, 120, mixture, window=self.window, seed=1)
            return self.way.loader(Keys(sum(SIZES)), batch_sampler=batches, batchify_fn=list, ranks=ranks)
        rows = PackingSampler(LENGTHS, 64, mixture, method=self.kind, window=self.window, seed=1)
        return self.way.loader(Keys(sum(SIZES)), 1, sampler=rows, batchify_fn=list, ranks=ranks)

    def started(self):
        self.iterators = self.iterators or [iter(loader) for loader in self.loaders]
        return self.iterators

    def read(self, batches=None):
        """Delivers as many batches of all ranks together, or the rest of the epoch; returns whether there were any."""
        rounds, before = None if batches is None else batches // len(self.loaders), len(self.got)
        for parts in zip(*(islice(iterator, rounds) for iterator in self.started()), strict=True):
            self.got += parts
        return len(self.got) - before == batches

    def set_weights(self, weights):
        for iterator in self.started():
            mixture = iterator.sampler
            while not isinstance(mixture, MixtureSampler):
                mixture = mixture.sampler
            mixture.weights = weights
            if self.flush:
                iterator.flush()

    def resume(self, ranks):
        state = json.loads(json.dumps(merge_states([loader.state_dict() for loader in self.loaders])))
        self.close()
        self.open(ranks)
        for loader in self.loaders:
            loader.load_state_dict(state)

    def close(self):
        for loader in self.loaders:
            loader.close()

    def run(self, steps, resumes=True):
        """The batches of an epoch, in the order of all ranks."""
        self.open(1)
        for step in steps:
            if not self.read(ROUND * step.rounds):
                break
            if step.weights is not None and not step.late:
                self.set_weights(step.weights)
            if step.ranks is not None and resumes:
                self.resume(step.ranks)
            if step.weights is not None and step.late:
                self.set_weights(step.weights)
        else:
            self.read()
        self.close()
        return self.got


class Corpus:
    """Something with lengths, as a `MixtureSampler` needs it for tokens."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)


LENGTHS = np.random.default_rng(3).integers(1, 40, sum(SIZES))


def documents_of(kind, batches):
    """The documents that were delivered; one that was cut is there once."""
    if kind == "batches":
        return sorted(document for batch in batches for document in batch)
    rows = [row for batch in batches for row in batch]
    pieces = [piece for row in rows for piece in zip(row.documents, row.starts, row.stops, strict=True)]
    assert len(pieces) == len(set(pieces))
    return sorted(document for document, start, _ in pieces if start == 0)


@pytest.mark.parametrize("seed", range(PROGRAMS))
@pytest.mark.parametrize("kind", ["best_fit", "in_order", "split", "batches"])
def test_programs_lose_and_double_no_document(kind, seed):
    steps, window = steps_of(seed), random.Random(seed).choice([7, 40, 200, 1000])
    for way, flush in ((SERIAL, True), (SERIAL, False), *[(THREAD, True), (THREAD, False)] * (seed % 8 == 0)):
        got = Program(kind, window, way, flush).run(steps)
        delivered = documents_of(kind, got)
        most = max([step.ranks or 1 for step in steps])
        if most == 1:  # otherwise, rows of the last round may be left out, and so may parts of the last windows
            sources = np.searchsorted(np.cumsum(SIZES), delivered, "right")
            counts = np.bincount(sources, minlength=len(SIZES)).tolist()
            firsts = np.cumsum([0, *SIZES]).tolist()
            assert sum(counts) == DRAWN
            assert delivered == [
                first + number for first, n in zip(firsts, counts, strict=False) for number in range(n)
            ]
        if flush:
            whole = Program(kind, window, SERIAL, flush).run(steps, resumes=False)
            assert got == whole[: len(got)]
            assert len(whole) - len(got) < ROUND


TRAINING = """
import json, os, signal, sys
import numpy as np
from gluonloader import ConcatDataset, DataLoader, MixtureSampler, Ranks
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset

STEPS, ROWS, CHANGES = 60, 4, {15: [0, 0, 1], 16: [1, 1, 0], 40: [1, 2, 3]}
file, ranks, killed_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
counts = [rng.integers(1, 60, 300) for _ in range(3)]
corpora = [TokenDataset([rng.integers(kind, 50 + kind, n) for n in part]) for kind, part in enumerate(counts)]
lengths = np.concatenate([corpus.lengths for corpus in corpora])


def loader_of(rank):
    mixture = MixtureSampler(corpora, [3, 2, 1], unit="tokens", num_samples=800, seed=1)
    rows = PackingSampler(lengths, 64, mixture, window=40, seed=2)
    data, ranks_ = PackedDataset(ConcatDataset(*corpora)), Ranks(rank, ranks)
    return DataLoader(data, ROWS // ranks, sampler=rows, batchify_fn=PackRows(), ranks=ranks_, num_workers=1, seed=0)


loaders, weights, losses, step = [loader_of(rank) for rank in range(ranks)], np.zeros((60, 60)), [], 0
if os.path.exists(file):
    saved = json.load(open(file))
    weights, losses, step = np.array(saved["weights"]), saved["losses"], len(saved["losses"])
    for loader in loaders:
        loader.load_state_dict(saved["loader"])
iterators = [iter(loader) for loader in loaders]
while step < STEPS:
    if step == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    batches = [next(iterator) for iterator in iterators]
    tokens = np.stack([batch["tokens"] for batch in batches], 1).reshape(ROWS, -1)  # in the order of the rows
    inputs, labels = tokens[:, :-1].ravel(), tokens[:, 1:].ravel()
    scores = np.exp(weights[inputs])
    scores /= scores.sum(1, keepdims=True)
    losses.append(float(-np.log(scores[np.arange(len(labels)), labels]).mean()))
    scores[np.arange(len(labels)), labels] -= 1
    np.subtract.at(weights, inputs, 0.1 * scores)
    step += 1
    if step in CHANGES:
        for iterator in iterators:
            mixture = iterator.sampler
            while not isinstance(mixture, MixtureSampler):
                mixture = mixture.sampler
            mixture.weights = CHANGES[step]
            iterator.flush()
    if step % 5 == 0:
        state = {"weights": weights.tolist(), "losses": losses, "loader": loaders[0].state_dict()}
        with open(file + ".new", "w") as new:
            json.dump(state, new)
        os.replace(file + ".new", file)
print(json.dumps(losses))
"""


@pytest.mark.spawn
def test_losses_are_those_of_a_run_that_was_not_interrupted(tmp_path):
    def run(name, ranks, killed_at=-1):
        program = [sys.executable, "-c", TRAINING, str(tmp_path / name), str(ranks), str(killed_at)]
        return subprocess.run(program, capture_output=True, text=True, timeout=120)

    whole = json.loads(run("whole", 1).stdout)
    assert len(whole) == 60
    for ranks, killed_at in ((2, 18), (4, 23), (1, 41)):
        assert run("killed", ranks, killed_at).returncode == -9
    done = run("killed", 4)
    assert json.loads(done.stdout) == pytest.approx(whole, rel=1e-9), done.stderr
