"""Mixtures and packed rows in loaders: the same rows whoever reads them, and after any chain of resumes."""

import contextlib
import json
import os
import random
import signal
from itertools import islice

import numpy as np
import pytest
from conftest import ANY, FORK, SERIAL, THREAD, workers

from gluonloader import ConcatDataset, DataLoader, MixtureSampler, Ranks
from gluonloader.errors import LoaderClosed
from gluonloader.text import PackedDataset, PackingSampler, PackRows, TokenDataset

SIZE, BATCH = 32, 2
CHAINS = range(int(os.environ.get("GLUONLOADER_RESUMES", 200)) // 20)


def corpora(number=0):
    """Three corpora of documents whose first token is their index in the joined dataset."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(1, 50, int(rng.integers(60, 240)))
    documents = [np.concatenate([[index], rng.integers(0, 9999, length - 1)]) for index, length in enumerate(lengths)]
    parts = np.split(np.arange(len(documents)), [20, 50])
    return [TokenDataset([documents[index] for index in part]) for part in parts]


def sampler_of(sets, unit="tokens", method="best_fit", window=16):
    mixture = MixtureSampler(sets, weights=[3, 2, 1], unit=unit, num_samples=100, seed=1)
    lengths = np.concatenate([part.lengths for part in sets])
    return PackingSampler(lengths, SIZE, sampler=mixture, method=method, window=window, seed=2)


def rows_of(sets, **options):
    """The tokens of each row of an epoch, made one by one."""
    rows = PackedDataset(ConcatDataset(*sets))
    return [PackRows()([rows[row]])["tokens"][0].tolist() for row in sampler_of(sets, **options)]


def loader_of(sets, way, ranks=None, **options):
    retries = way.retrying(100) if way is FORK else {}
    rows = PackedDataset(ConcatDataset(*sets))
    sampler = sampler_of(sets, **options)
    return way.loader(rows, BATCH, sampler=sampler, batchify_fn=PackRows(), ranks=ranks, **retries)


def read(loader, count=None):
    return [row for batch in islice(loader, count) for row in batch["tokens"].tolist()]


@pytest.mark.parametrize("way", ANY, ids=str)
@pytest.mark.parametrize("method", ["best_fit", "split"])
def test_rows_are_the_same_over_each_executor(way, method):
    sets = corpora()
    with loader_of(sets, way, method=method) as loader:
        assert read(loader) == rows_of(sets, method=method)
        second = read(loader)
    sampler = sampler_of(sets, method=method)
    list(sampler)
    assert second == [PackRows()([PackedDataset(ConcatDataset(*sets))[row]])["tokens"][0].tolist() for row in sampler]


def test_indices_name_the_documents_and_replay_makes_a_batch_again():
    sets = corpora()
    with loader_of(sets, THREAD) as loader:
        batches = [batch["tokens"].tolist() for batch in loader]
        for number in (0, len(batches) - 1):
            rows = loader.indices(0, number)
            starts = [list(np.cumsum([0, *row.lengths])[:-1]) for row in rows]
            for row, tokens, places in zip(rows, batches[number], starts, strict=True):
                whole = [document for document, start in zip(row.documents, row.starts, strict=True) if start == 0]
                first = [tokens[place] for place, start in zip(places, row.starts, strict=True) if start == 0]
                assert first == whole
            assert loader.replay(0, number)["tokens"].tolist() == batches[number]
        future = loader.replay(2, 3)["tokens"].tolist()
        list(loader)
        assert [batch["tokens"].tolist() for batch in islice(loader, 4)][3] == future
        with pytest.raises(ValueError, match="batch=1000: epoch 0 has fewer batches"):
            loader.indices(0, 1000)


def test_with_rollover_rows_are_known_when_their_epoch_has_started():
    rows = PackedDataset(ConcatDataset(*corpora()))
    with DataLoader(rows, 7, sampler=sampler_of(corpora()), batchify_fn=PackRows(), last_batch="rollover") as loader:
        list(loader)
        for method in (loader.indices, loader.replay, loader.seek):
            with pytest.raises(ValueError, match="epoch=1: with last_batch=.rollover., .*PackingSampler has no length"):
                method(1, 0)
        iterator = iter(loader)
        first = next(iterator)["tokens"].tolist()
        assert loader.replay(1, 0)["tokens"].tolist() == first


def test_a_loader_of_rows_has_no_length():
    with loader_of(corpora(), SERIAL) as loader:
        with pytest.raises(TypeError, match=r"the number of rows of an epoch is known only .*sampler\.count\(\)"):
            len(loader)
        assert "method='best_fit'" in repr(loader)
        list(islice(loader, 3))
        assert loader.stats().batches == 3


@pytest.mark.parametrize("way", ANY, ids=str)
def test_new_weights_lose_nothing_and_a_position_after_them_is_exact(way):
    sets, firsts = corpora(), np.array([0, 20, 50])
    with loader_of(sets, way, window=8) as loader, loader_of(sets, SERIAL, window=8) as resumed:
        iterator, rows, batches = iter(loader), [], []
        for number, batch in enumerate(iterator):
            rows += iterator.last.indices
            batches.append(batch["tokens"].tolist())
            if number in (2, 6):
                iterator.sampler.sampler.weights = [[0, 0, 1], [1, 1, 0]][number == 6]
                iterator.flush()
            if number in (3, 9):
                state = json.loads(json.dumps(loader.state_dict()))
                resumed.load_state_dict(state)
                expected = [batch["tokens"].tolist() for batch in resumed]
                start = number + 1
        assert batches[start:] == expected
    documents = [document for row in rows for document in row.documents]
    sources = np.searchsorted(firsts, documents, "right") - 1
    assert set(sources[:8]) == {0, 1, 2}
    assert any((sources[place : place + 8] == 2).all() for place in range(len(sources)))  # a whole window
    pieces = {(document, start) for row in rows for document, start in zip(row.documents, row.starts, strict=True)}
    whole = [document for row in rows for document, start in zip(row.documents, row.starts, strict=True) if start == 0]
    assert len(whole) == 100  # of the mixture
    assert {document for document, _ in pieces} == set(whole)


@pytest.mark.parametrize("policy", ["uneven", "drop", "repeat"])
@pytest.mark.parametrize("count", [3, 8])
def test_ranks_divide_the_rows(policy, count):
    sets = corpora()
    rows = rows_of(sets)
    shares = []
    for rank in range(count):
        with loader_of(sets, SERIAL, Ranks(rank, count, policy)) as loader:
            shares.append(read(loader))
    whole = len(rows) // count * count
    if policy == "drop":
        assert shares == [rows[:whole][rank::count] for rank in range(count)]
    else:
        assert [share[: whole // count] for share in shares] == [rows[:whole][rank::count] for rank in range(count)]
        last = [share[whole // count :] for share in shares]
        missing = count * (whole < len(rows)) - (len(rows) - whole) if policy == "repeat" else 0
        assert sum(last, []) == rows[whole:] + rows[:missing]


@pytest.mark.parametrize("arguments", [{"num_workers": "auto"}, {"executor": "auto", "num_workers": 2}], ids=str)
def test_the_executor_may_be_chosen_automatically(arguments):
    sets = corpora()
    rows = PackedDataset([tokens for part in sets for tokens in part])
    with DataLoader(rows, BATCH, sampler=sampler_of(sets), batchify_fn=PackRows(), seed=0, **arguments) as loader:
        assert read(loader) == rows_of(sets)


def test_ranks_notice_that_their_orders_differ():
    sets, values = corpora(), {}
    rows = PackedDataset(ConcatDataset(*sets))
    lengths = np.concatenate([part.lengths for part in sets])
    for rank in (0, 1):

        def gather(value, rank=rank):
            mine = values.setdefault(rank, [])
            mine.append(value)
            return [value, value] if rank == 0 else [values[0][len(mine) - 1], value]

        sampler = PackingSampler(lengths, SIZE, seed=rank)
        ranks = Ranks(rank, 2, "drop", gather=gather)
        with SERIAL.loader(rows, BATCH, sampler=sampler, batchify_fn=PackRows(), ranks=ranks) as loader:
            if rank == 0:
                next(iter(loader))
            else:
                with pytest.raises(ValueError, match="rank 1 has other first indices in the order, unlike rank 0"):
                    next(iter(loader))


def kill_one(loader, rng):
    if pids := workers(loader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.kill
@pytest.mark.parametrize("number", CHAINS)
def test_a_chain_of_resumes_with_other_ranks_and_workers_loses_nothing(number):
    rng = random.Random(number)
    sets = corpora(number)
    options = {
        "unit": rng.choice(["samples", "tokens"]),
        "method": rng.choice(["best_fit", "in_order", "split"]),
        "window": rng.choice([5, 16, 300]),
    }
    rows, seen, state = rows_of(sets, **options), [], None
    for last in (False, False, False, True):
        count = rng.choice([1, 2, 3, 5, 8])
        most = None if last else rng.randrange(0, 1 + max(0, len(rows) - len(seen)) // (count * BATCH))
        shares, states = [], []
        for rank in range(count):
            way = rng.choice([SERIAL, SERIAL, THREAD, FORK])
            with loader_of(sets, way, Ranks(rank, count, "uneven"), **options) as loader:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                iterator, share = iter(loader), []
                for batch in islice(iterator, most):
                    share += batch["tokens"].tolist()
                    if way is FORK and rng.random() < 0.3:
                        kill_one(loader, rng)
                shares.append(share)
                states.append(json.dumps(loader.state_dict()))
        longest = max(map(len, shares))
        seen += [share[place] for place in range(longest) for share in shares if place < len(share)]
        assert seen == rows[: len(seen)]
        state = states[0]
        assert len(state) < 2000
        if json.loads(state)["epoch"]:
            break
    assert seen == rows


def test_the_state_of_an_epoch_that_was_left_for_another_one():
    sets = corpora()
    with loader_of(sets, SERIAL, window=8) as loader, loader_of(sets, SERIAL, window=8) as other:
        whole = [batch["tokens"].tolist() for batch in loader]
        loader.set_epoch(0)
        left = iter(loader)
        for _ in range(12):
            next(left)
        state = left.state_dict()
        list(islice(loader, 30))
        with contextlib.suppress(LoaderClosed):  # an iterator may have no state when another one has started
            state = left.state_dict()
        other.load_state_dict(json.loads(json.dumps(state)))
        assert [batch["tokens"].tolist() for batch in other] == whole[12:]


def test_a_resume_plans_one_window():
    sets = corpora()
    with loader_of(sets, SERIAL, window=8) as loader:
        whole = read(loader)
        iterator = iter(loader)
        first = [next(iterator)["tokens"].tolist() for _ in range(10)]
        state = loader.state_dict()
    assert whole
    with loader_of(sets, SERIAL, window=8) as loader, loader_of(sets, SERIAL, window=8) as all_of_it:
        loader.load_state_dict(state)
        rest = [batch["tokens"].tolist() for batch in loader]
        all_of_it.set_epoch(1)
        assert first + rest == [batch["tokens"].tolist() for batch in all_of_it]
