"""Several corpora, and splits of them, as one dataset: mixed, packed, counted by name, evaluated, trained in stages."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from gluonloader import ConcatDataset, DataLoader, MixtureSampler, Ranks, WeightedSampler, random_split
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset


def make_corpus(kind, count, longest):
    """Documents whose tokens all are `kind` + 1."""
    lengths = np.random.default_rng(kind).integers(1, longest, count)
    return TokenDataset([np.full(length, kind + 1) for length in lengths])


CORPORA = ConcatDataset(
    {
        "web": random_split(make_corpus(0, 400, 60), [0.75, 0.25], seed=0)[0],
        "code": make_corpus(1, 90, 90).take(80),
        "books": ConcatDataset(make_corpus(2, 20, 200), make_corpus(2, 10, 200)),
    }
)
WEIGHTS = {"books": 0.2, "web": 0.5, "code": 0.3}


def make_loader(window=40, **options):
    mixture = MixtureSampler(CORPORA, WEIGHTS, unit="tokens", num_samples=1000, seed=0)
    rows = PackingSampler(CORPORA.lengths, 128, sampler=mixture, window=window, seed=0)
    data = PackedDataset(CORPORA)
    return DataLoader(data, 2, sampler=rows, batchify_fn=PackRows(), seed=0, **options), mixture


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "executor": "thread"}])
def test_what_was_drawn_of_each_corpus_is_what_was_delivered(options):
    loader, mixture = make_loader(**options)
    tokens = Counter()
    for epoch in range(2):
        for batch in loader:
            tokens.update(batch["tokens"][batch["segments"] > 0].tolist())
        drawn = {stats.name: stats for stats in mixture.drawn}
        assert [stats.tokens for stats in drawn.values()] == [tokens[kind] for kind in (1, 2, 3)]
        assert sum(stats.samples for stats in drawn.values()) == 1000 * (epoch + 1)
    for (name, stats), part in zip(drawn.items(), CORPORA.datasets, strict=True):
        assert stats.tokens / sum(tokens.values()) == pytest.approx(WEIGHTS[name], abs=0.01)
        assert stats.epochs == stats.samples / len(part)
    loader.close()


def test_documents_have_weights_of_their_own_while_packing():
    web, _, books = CORPORA.datasets
    quality = np.repeat([9.0, 1.0], len(web) // 2)
    once = WeightedSampler(quality, num_samples=150, replacement=False, seed=0)
    documents = [
        document for row in PackingSampler(web.lengths, 200, sampler=once, seed=0) for document in row.documents
    ]
    assert len(documents) == len(set(documents)) == 150
    assert 100 < sum(document < 150 for document in documents) < 150
    repeated = np.random.default_rng(0).choice(len(web), 600, p=quality / quality.sum())
    mixture = MixtureSampler([web, books], [1, 0], samplers=[repeated, range(30)], num_samples=600, seed=0)
    rows = PackingSampler(np.concatenate([web.lengths, books.lengths]), 200, sampler=mixture, seed=0)
    assert sorted(document for row in rows for document in row.documents) == sorted(repeated)


# -- Evaluation ----------------------------------------------------------------------------------------------------


def read_rows(held_out, rank, count):
    """The batches of two epochs of an evaluation on one rank, each a list of rows."""
    rows = PackingSampler(held_out.lengths, 128, shuffle=False)
    ranks = Ranks(rank, count, "uneven")
    loader = DataLoader(PackedDataset(held_out), 4, sampler=rows, batchify_fn=PackRows(), ranks=ranks)
    return [[[row.tobytes() for row in batch["tokens"]] for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("held_out", [CORPORA, CORPORA.take(9)], ids=["many", "few"])
def test_an_evaluation_reads_each_row_once_on_any_number_of_ranks(held_out):
    (whole, again) = read_rows(held_out, 0, 1)
    expected = sorted(sum(whole, []))
    assert whole == again
    for count in (2, 3, 5):
        epochs = [read_rows(held_out, rank, count) for rank in range(count)]
        assert all(first == second for first, second in epochs)
        assert sorted(row for first, _ in epochs for batch in first for row in batch) == expected


# -- Stages --------------------------------------------------------------------------------------------------------

STEP = 4  # rows of all ranks in a step
FIRST, SECOND, LAST = ({"web": web, "code": 0.2, "books": 0.8 - web} for web in (0.8, 0.4, 0))
LINEAR, END = 300, 900  # documents: stage 2 changes the shares linearly between these places
ANNEAL = 100  # the step after which the loop itself starts stage 3


class Training:
    """A training in three stages; `got` has the tokens of the rows of each step."""

    def __init__(self, ranks, state=None, step=0):
        self.mixtures, self.loaders, self.step = [], [], step
        for rank in range(ranks):
            mixture = MixtureSampler(CORPORA, FIRST, unit="tokens", num_samples=2000, seed=0)
            mixture.schedule([(LINEAR, FIRST), (END, SECOND)], linear=True)
            rows = PackingSampler(CORPORA.lengths, 128, sampler=mixture, window=40, seed=0)
            arguments = {"sampler": rows, "batchify_fn": PackRows(), "ranks": (rank, ranks), "seed": 0}
            loader = DataLoader(PackedDataset(CORPORA), STEP // ranks, num_workers=0, **arguments)
            if state is not None:
                loader.load_state_dict(state)
            self.mixtures.append(mixture)
            self.loaders.append(loader)
        self.iterators = [iter(loader) for loader in self.loaders]

    def run(self, steps):
        """The tokens of the rows of so many steps, in the order of all ranks."""
        got = []
        for batches in islice(zip(*self.iterators, strict=True), steps):
            got.append(np.stack([batch["tokens"] for batch in batches], 1).reshape(STEP, -1).tolist())
            self.step += 1
            if self.step == ANNEAL:
                for mixture, iterator in zip(self.mixtures, self.iterators, strict=True):
                    mixture.weights = LAST
                    iterator.flush()
        return got

    def state(self):
        return json.loads(json.dumps(self.loaders[0].state_dict()))


def shares_of(steps):
    tokens = np.array(steps)
    return np.bincount(tokens[tokens > 0], minlength=4)[1:] / (tokens > 0).sum()


def test_a_training_of_three_stages_resumes_in_stage_2_on_other_ranks():
    expected = Training(1).run(140)
    assert shares_of(expected[:20]) == pytest.approx([0.8, 0.2, 0], abs=0.05)
    assert 0.5 < shares_of(expected[40:60])[0] < 0.75  # between those of stage 1 and those at the end of stage 2
    assert shares_of(expected[80:ANNEAL]) == pytest.approx([0.4, 0.2, 0.4], abs=0.1)
    assert shares_of(expected[ANNEAL + 10 :]) == pytest.approx([0, 0.2, 0.8], abs=0.05)
    training = Training(1)
    got = training.run(30)
    for ranks, steps in ((2, 10), (4, 5), (1, 10), (4, 85)):
        drawn = sum(stats.samples for stats in training.mixtures[0].drawn)
        assert LINEAR < drawn < END  # the linear change has started and not ended
        training = Training(ranks, training.state(), len(got))
        got += training.run(steps)
    assert got == expected
