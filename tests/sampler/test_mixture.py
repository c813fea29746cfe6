"""Mixtures: each dataset keeps its share at every step, and is read in its own order."""

import contextlib
import json
from collections import deque
from itertools import islice, zip_longest

import numpy as np
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_positions import part, position, resumed

from gluonloader import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    MixtureSampler,
    RandomSampler,
    Ranks,
    ShardedSampler,
)
from gluonloader.sampler.base import start_pass
from gluonloader.text import PackingSampler, TokenDataset

WEIGHTS = st.lists(st.floats(0.001, 1), min_size=1, max_size=8)


def two(size=500, weights=(1, 0), num_samples=400):
    """A mixture of two datasets of the same size."""
    return MixtureSampler([size, size], weights=list(weights), num_samples=num_samples, seed=1)


def sources_of(indices, sizes):
    """The source of each index, and its index there."""
    firsts = np.cumsum([0, *sizes])
    source = np.searchsorted(firsts, indices, "right") - 1
    return source, np.asarray(indices) - firsts[source]


def counts_after_each(source, number):
    return np.cumsum(np.eye(number, dtype=int)[source], 0)


@given(weights=WEIGHTS, count=st.integers(1, 600))
def test_after_each_sample_each_source_is_within_one_sample_of_its_share(weights, count):
    sizes = [50] * len(weights)
    sampler = MixtureSampler(sizes, weights=weights, num_samples=count, seed=0)
    source, _ = sources_of(list(sampler), sizes)
    ideal = np.arange(1, count + 1)[:, None] * (np.array(weights) / sum(weights))
    assert np.abs(counts_after_each(source, len(weights)) - ideal).max() < 1


def test_shares_hold_beyond_what_is_computed_at_once():
    sizes, weights = [500, 70, 9], [0.61, 0.3, 0.09]
    source, _ = sources_of(list(MixtureSampler(sizes, weights=weights, num_samples=20_000, seed=0)), sizes)
    ideal = np.arange(1, 20_001)[:, None] * np.array(weights)
    assert np.abs(counts_after_each(source, 3) - ideal).max() < 1


@settings(max_examples=examples(30))
@given(lengths=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=30), min_size=2, max_size=4), data=st.data())
def test_after_each_sample_the_tokens_are_within_two_documents_of_their_share(lengths, data):
    weights = data.draw(st.lists(st.floats(0.01, 1), min_size=len(lengths), max_size=len(lengths)))
    sets = [TokenDataset([np.zeros(length, int) for length in part]) for part in lengths]
    sampler = MixtureSampler(sets, weights=weights, unit="tokens", num_samples=400, seed=0)
    source, index = sources_of(list(sampler), [len(part) for part in lengths])
    tokens = np.array([lengths[s][i] for s, i in zip(source, index, strict=True)])
    drawn = np.cumsum(np.eye(len(lengths), dtype=int)[source] * tokens[:, None], 0)
    ideal = np.cumsum(tokens)[:, None] * (np.array(weights) / sum(weights))
    assert np.abs(drawn - ideal).max() <= 2 * max(map(max, lengths))


def test_each_source_is_read_in_its_own_order_epoch_after_epoch():
    sizes = [40, 7]
    samplers = [RandomSampler(40, seed=5), RandomSampler(7, seed=6)]
    mixture = MixtureSampler(sizes, weights=[0.5, 0.5], num_samples=100, samplers=samplers, seed=0)
    source, index = sources_of(list(mixture) + list(mixture), sizes)
    for number, (size, seed) in enumerate([(40, 5), (7, 6)]):
        own = RandomSampler(size, seed=seed)
        expected = [key for _ in range(100 // size + 1) for key in own][:100]
        assert index[source == number].tolist() == expected


def test_the_epochs_of_a_mixture_continue_each_other():
    one, two = (MixtureSampler([10, 5], weights=[2, 1], num_samples=count, seed=0) for count in (7, 35))
    assert [key for _ in range(5) for key in one] == list(two)


@pytest.mark.parametrize(
    ("arguments", "length"),
    [
        ({"weights": [1, 1]}, 20),
        ({"weights": [1, 1], "stop": "all"}, 200),
        ({"weights": [1, 0]}, 100),
        ({}, 110),
        ({"epochs": [1, 2]}, 120),
        ({"epochs": [0.5, 3]}, 80),
        ({"temperature": 1}, 110),
        ({"temperature": 1e9}, 20),
        ({"weights": [1, 1], "num_samples": 33}, 33),
    ],
)
def test_the_length_of_an_epoch(arguments, length):
    sampler = MixtureSampler([100, 10], seed=0, **arguments)
    assert len(sampler) == length
    assert len(list(sampler)) == length


def test_epochs_say_how_often_each_source_is_read():
    sizes = [100, 10]
    source, index = sources_of(list(MixtureSampler(sizes, epochs=[0.5, 3], seed=0)), sizes)
    assert (source == 0).sum() == len(set(index[source == 0])) == 50
    assert np.bincount(index[source == 1]).tolist() == [3] * 10


def test_temperature_makes_shares_more_equal():
    assert MixtureSampler([100, 25], temperature=2, seed=0).weights == pytest.approx([2 / 3, 1 / 3])


def test_what_was_drawn():
    sets = [TokenDataset([np.zeros(3, int)] * 8), TokenDataset([np.zeros(5, int)] * 4)]
    sampler = MixtureSampler(sets, weights=[1, 1], num_samples=10_000, seed=0)
    assert [stats.samples for stats in sampler.drawn] == [0, 0]
    list(islice(sampler, 6000))  # more than it computes at once
    assert [stats.samples for stats in sampler.drawn] == [3000, 3000]
    list(sampler)
    drawn = sampler.drawn
    assert [stats.samples for stats in drawn] == [10_000, 10_000]  # of both epochs
    assert [stats.tokens for stats in drawn] == [30_000, 50_000]
    assert [stats.epochs for stats in drawn] == [1250, 2500]
    assert [stats.tokens for stats in MixtureSampler([3, 3], seed=0).drawn] == [None, None]


def test_what_was_drawn_goes_on_after_changes_and_a_resume():
    sampler = two(50, [1, 1], 1000)
    keys = start_pass(sampler)
    list(islice(keys, 300))
    keys.seek(200)  # as a flush of a loader does
    sampler.weights = [0, 1]
    list(islice(keys, 10))
    assert [stats.samples for stats in sampler.drawn] == [100, 110]
    again = two(50, [1, 1], 1000)
    list(resumed(again, position(sampler, 0, 210), 210))
    assert [stats.samples for stats in again.drawn] == [100, 900]


@pytest.mark.parametrize("policy", ["repeat", "drop", "uneven"])
def test_what_was_drawn_is_that_of_all_ranks(policy):
    data = ConcatDataset({"a": range(50), "b": range(50)})
    for index in range(3):
        mixture = MixtureSampler(data, weights={"a": 3, "b": 1}, num_samples=100, seed=0)
        list(DataLoader(data, 4, sampler=mixture, ranks=Ranks(index, 3, policy), seed=0))
        samples = [stats.samples for stats in mixture.drawn]
        assert samples == [75, 25] or (policy == "drop" and samples == [74, 25])


def test_the_sources_may_be_joined_already():
    data = ConcatDataset({"web": range(60), "code": range(40)})
    assert data.names == ["web", "code"]
    assert repr(data) == "ConcatDataset(web=range(60), code=range(40))"
    joined = MixtureSampler(data, weights={"code": 0.75, "web": 0.25}, num_samples=40, seed=3)
    assert list(joined) == list(MixtureSampler([60, 40], weights=[0.25, 0.75], num_samples=40, seed=3))
    assert [(stats.name, stats.samples) for stats in joined.drawn] == [("web", 10), ("code", 30)]
    unnamed = MixtureSampler(ConcatDataset(range(60), range(40)), num_samples=40, seed=3)
    assert [stats.name for stats in unnamed.drawn] == [None, None]
    with pytest.raises(ValueError, match="the names are"):
        MixtureSampler(data, weights={"web": 1}, seed=0)


# -- Changes of the weights ----------------------------------------------------------------------------------------


def prefixes(indices, sizes, seed):
    """Whether what was read of each source is the start of its own order."""
    source, index = sources_of(indices, sizes)
    fresh = MixtureSampler(sizes, weights=[1] * len(sizes), num_samples=100_000, seed=seed)
    every, everything = sources_of(list(fresh), sizes)
    return all(
        index[source == number].tolist() == everything[every == number][: (source == number).sum()].tolist()
        for number in range(len(sizes))
    )


def test_new_weights_apply_from_the_next_index_that_is_drawn():
    sizes = [1000, 1000, 1000]
    sampler = MixtureSampler(sizes, weights=[1, 0, 0], num_samples=3000, seed=4)
    keys, drawn = iter(sampler), []
    for weights in ([0, 1, 0], [0.5, 0.5, 0], [0, 0, 1], [1, 1, 1], [0.2, 0.3, 0.5]):
        drawn += islice(keys, 300)
        sampler.weights = weights
        assert sampler.weights == pytest.approx(np.array(weights) / sum(weights))
    drawn += keys
    source, _ = sources_of(drawn, sizes)
    assert (source[:300] == 0).all()
    assert (source[300:600] == 1).all()
    assert (source[900:1200] == 2).all()
    assert len(drawn) == 3000
    assert prefixes(drawn, sizes, 4)


def test_scheduled_weights_apply_at_their_place():
    sizes = [1000, 1000]
    sampler = MixtureSampler(sizes, weights=[1, 0], num_samples=1500, seed=4)
    sampler.schedule([(100, [0, 1]), (5000, [1, 0])])
    source, _ = sources_of(list(sampler), sizes)
    assert (source[:100] == 0).all()
    assert (source[100:] == 1).all()
    with pytest.raises(ValueError, match="k=10: 4096 indices were computed already, so it must be an int >= 4096"):
        sampler.schedule([(10, [1, 1])])


@settings(max_examples=examples(30))
@given(changes=st.dictionaries(st.integers(0, 9000), WEIGHTS.filter(lambda w: len(w) == 3), max_size=4))
def test_a_position_is_exact_after_changes_of_the_weights(changes):
    def make():
        return MixtureSampler([300, 200, 100], weights=[3, 2, 1], num_samples=10_000, seed=1)

    whole = make()
    whole.schedule(changes.items())
    order = list(whole)
    sampler = make()
    sampler.schedule(changes.items())
    keys = iter(sampler)
    for drawn in (0, 700, 5000, 9999):
        keys.seek(drawn)
        next(keys)
        again = resumed(make(), position(sampler, 0, drawn), drawn)
        assert list(islice(again, 300)) == order[drawn : drawn + 300]


def test_a_linear_schedule_changes_the_shares_in_small_steps():
    def make():
        mixture = MixtureSampler([20_000, 20_000, 20_000], weights=[1, 0, 0], num_samples=30_000, seed=1)
        mixture.schedule([(3000, [1, 0, 0]), (13_000, [0, 0.5, 0.5]), (23_000, [0, 1, 0])], linear=True)
        return mixture

    mixture = make()
    order = list(mixture)
    source = np.array(order) // 20_000
    assert (source[:3000] == 0).all()
    assert (source[13_100:] != 0).all()
    assert (source[23_100:] == 1).all()
    for start in range(3000, 23_000, 1000):
        passed = (start + 500 - 3000) / 10_000
        expected = [1 - passed, passed / 2, passed / 2] if passed < 1 else [0, passed / 2, 1 - passed / 2]
        shares = np.bincount(source[start : start + 1000], minlength=3) / 1000
        assert shares == pytest.approx(expected, abs=0.02)
    for drawn in (0, 2999, 3001, 9000, 20_000):
        assert list(resumed(make(), position(mixture, 0, drawn), drawn)) == order[drawn:]
    assert [list(ShardedSampler(make(), 3, rank, "keep")) for rank in range(3)] == [order[rank::3] for rank in range(3)]


def test_new_weights_in_a_linear_schedule_start_the_rest_of_it():
    mixture = two(20_000, num_samples=20_000)
    mixture.schedule([(0, [1, 0]), (10_000, [0, 1])], linear=True)
    keys = iter(mixture)
    first = list(islice(keys, 4000))
    mixture.weights = [0.2, 0.8]
    source = np.array([*first, *keys]) // 20_000
    assert source[4000:5000].mean() == pytest.approx(0.8, abs=0.05)
    assert (source[10_000:] == 1).all()


@pytest.mark.parametrize("change", ["weights", "schedule", "replace"])
def test_a_change_in_a_linear_schedule_leaves_what_was_drawn_as_it_was(change):
    mixture = two(20_000, num_samples=20_000)
    mixture.schedule([(0, [1, 0]), (20_000, [0, 1])], linear=True)
    keys = start_pass(mixture)
    order = list(islice(keys, 5000))
    if change == "weights":
        mixture.weights = [1, 1]
    else:
        mixture.schedule([(8000, [1, 1])], replace=change == "replace")
    order += keys
    assert part(mixture, 0, 0, 20_000) == order
    for place in (100, 4990, 5300, 12_000):
        again = two(20_000, num_samples=20_000)
        assert list(resumed(again, position(mixture, 0, place), place)) == order[place:]


def test_a_schedule_can_be_replaced():
    mixture = two(20_000, num_samples=30_000)
    mixture.schedule([(1000, [0, 1])])
    mixture.schedule([(5000, [0, 1]), (9000, [1, 0]), (15_000, [1, 0])], linear=True)
    keys = iter(mixture)
    first = list(islice(keys, 2000))
    mixture.schedule([(9000, [0.5, 0.5])], replace=True)
    source = np.array([*first, *keys]) // 20_000
    assert source.tolist()[:1000] == [0] * 1000
    assert source.tolist()[1000:9000] == [1] * 8000  # the change at 1,000 has happened
    assert source[9000:15_000].mean() == pytest.approx(0.5, abs=0.001)
    assert mixture.weights == [0.5, 0.5]


def test_a_schedule_that_was_edited_since_the_state_was_saved_is_a_warning():
    def make(*places, linear=False):
        mixture = two(weights=[1, 3])
        mixture.schedule([(place, [1, 0]) for place in places], linear)
        return mixture

    saved = make(10_000, 20_000)
    state = position(saved)
    resumed(make(10_000, 20_000), state, 0)  # without a warning
    resumed(make(20_000), state, 0)  # neither, since the other change may have been scheduled later
    for edited in (make(10_000, 30_000), make(10_000, 20_000, linear=True)):
        with pytest.warns(RuntimeWarning, match="schedule of this MixtureSampler differs from that in the state"):
            resumed(edited, state, 0)
        assert position(edited) == state
    edited.schedule([(15_000, [0, 1])], replace=True)
    assert [place for place, _ in position(edited)["changes"]] == [0, 15_000]


def test_new_weights_replace_those_that_were_drawn_ahead():
    sizes = [1000, 1000, 1000]
    sampler = MixtureSampler(sizes, weights=[1, 0, 0], num_samples=2000, seed=1)
    sampler.schedule([(900, [0, 1, 0])])
    keys = iter(sampler)
    drawn = list(islice(keys, 100))
    sampler.weights = [0, 1, 0]
    list(islice(keys, 50))
    sampler.weights = [0, 0, 1]
    keys.seek(120)  # as `flush` does
    drawn += [*islice(keys, 700)]
    source, _ = sources_of(drawn, sizes)
    assert (source[100:] == 2).all()
    source, _ = sources_of(list(keys), sizes)
    assert (source[:80] == 2).all()
    assert (source[80:] == 1).all()


def test_steps_far_back_are_computed_again():
    sampler = MixtureSampler([50, 20], weights=[2, 1], num_samples=400_000, seed=1)
    keys = iter(sampler)
    first = list(islice(keys, 20_000))
    keys.seek(399_000)
    assert len(list(keys)) == 1000
    keys.seek(9_000)
    assert list(islice(keys, 9_000)) == first[9_000:18_000]


def test_new_weights_that_were_not_used_yet_are_in_the_state():
    sampler = two()
    keys = iter(sampler)
    list(islice(keys, 50))
    sampler.weights = [0, 1]
    saved = position(sampler, 0, 50)
    rest = list(keys)
    fresh = two()
    assert list(resumed(fresh, saved, 50)) == rest
    before = two()
    before.weights = [0, 1]
    resumed(fresh, position(before), 0)
    assert fresh.weights == [0, 1]


def test_a_loaded_position_replaces_what_was_computed_before():
    sampler = two(num_samples=9000)
    state = position(sampler)
    keys = iter(sampler)
    expected = list(islice(keys, 100))
    sampler.weights = [0, 1]
    assert list(islice(keys, 100)) != expected
    resumed(sampler, state, 0)
    assert part(sampler, 0, 0, 100) == expected
    with pytest.raises(ValueError, match="k=10: 4096 indices were computed already"):
        sampler.schedule([(10, [1, 1])])


def test_ranks_change_their_weights_at_the_same_place():
    def share(rank):
        sampler = ShardedSampler(two(), 3, rank, "keep")
        keys = BatchSampler(sampler, 5).begin()
        drawn = next(keys) + next(keys)
        sampler.sampler.weights = [0.5, 0.5]
        return drawn + [key for batch in keys for key in batch]

    shares = [share(rank) for rank in range(3)]
    merged = [key for keys in zip_longest(*shares) for key in keys if key is not None]
    assert len(merged) == len(set(merged)) == 400
    assert prefixes(merged, [500, 500], 1)


def test_the_state_is_small_and_does_not_grow():
    sampler = MixtureSampler([10**9] * 10, num_samples=10**9, seed=0)
    for step in range(5):
        sampler.schedule([(10**8 * (step + 1), np.random.default_rng(step).random(10))])
    next(iter(sampler))
    assert len(json.dumps(position(sampler, 0, 1))) < 2000


def test_a_dict_names_the_sources():
    named = MixtureSampler({"web": 60, "code": 40}, weights={"code": 0.75, "web": 0.25}, num_samples=40, seed=3)
    plain = MixtureSampler([60, 40], weights=[0.25, 0.75], num_samples=40, seed=3)
    assert list(named) == list(plain)
    assert [stats.name for stats in named.drawn] == ["web", "code"]
    of_array = MixtureSampler(np.array([60, 40]), weights=[0.25, 0.75], num_samples=40, seed=3)
    plain.set_epoch(0)
    assert list(of_array) == list(plain)
    named.weights = {"web": 1, "code": 0}
    assert named.weights == [1, 0]
    named.schedule([(10**6, {"web": 0, "code": 1})])
    other = MixtureSampler({"code": 60, "web": 40}, num_samples=40, seed=3)
    with pytest.raises(ValueError, match=r"sampler\.names=\['web', 'code'\]"):
        resumed(other, position(named), 0)


def test_a_position_in_a_mixture_of_long_documents_can_be_loaded():
    class Long(list):
        lengths = np.full(40, 50_000_000)

    def make():
        sources = [Long(range(40)), Long(range(40))]
        return MixtureSampler(sources, weights=[2, 1], unit="tokens", num_samples=5000, seed=0)

    sampler = make()
    order = list(sampler)
    assert list(resumed(make(), position(sampler, 0, 4900), 4900)) == order[4900:]


def test_weights_that_were_edited_since_the_state_was_saved_are_a_warning():
    state = position(two(weights=[1, 3]))
    edited = two(weights=[1, 1])
    text = r"weights=\[0.5, 0.5\] of this MixtureSampler differ from \[0.25, 0.75\] in the state"
    with pytest.warns(RuntimeWarning, match=text):
        resumed(edited, state, 0)
    assert edited.weights == [0.25, 0.75]
    edited.weights = [0.5, 0.5]
    resumed(two(weights=[1, 1]), position(edited), 0)  # without a warning, since this program is not edited
    changed = two(weights=[1, 3])
    changed.weights = [1, 0]
    resumed(two(weights=[1, 3]), position(changed), 0)  # neither


def test_no_change_is_scheduled_for_a_window_that_was_planned_before():
    def make():
        mixture = MixtureSampler([9000, 9000], num_samples=18_000, seed=1)
        return mixture, PackingSampler(np.ones(18_000, int), 10, mixture, window=6000, seed=1)

    mixture, rows = make()
    deque(islice(rows, 700), maxlen=0)
    saved = position(rows, 0, 700)
    mixture, rows = make()
    resumed(rows, saved, 700)
    with pytest.raises(ValueError, match="k=11000: 12000 indices were computed already"):
        mixture.schedule([(11_000, [1, 0])])
    mixture.schedule([(12_000, [1, 0])])


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [1, 2]},
        {"unit": "tokens"},
        {"orders": []},
        {"changes": []},
        {"scheduled": 3},
        {"scheduled": [3]},
        {"linear": 3},
        {"linear": [0]},
        {"linear": [[0, 100]]},
        {"linear": [[0, 0, [2**39, 2**39]]]},
        {"linear": [[3, 100, [2**39, 2**39]]]},
        {"linear": [[0, 100, [1, 1]]]},
        {"linear": [[0, "a", [2**39, 2**39]]]},
        {"pending": [1, 2]},
        {"changes": [[1, [2**39, 2**39]]]},
        {"changes": [[0, [1, 1]]]},
        {"changes": [[0, ["a", 1]]]},
        {"checkpoint": {}},
        {"checkpoint": {"step": 3, "counts": [1, 1], "balances": [0, 0], "tokens": [0, 0]}},
        {"checkpoint": {"step": 2, "counts": [1, 1], "balances": [0], "tokens": [0, 0]}},
    ],
)
def test_a_position_of_another_mixture_is_refused(change):
    sampler = MixtureSampler([3, 4], seed=0)
    with pytest.raises(ValueError, match="state: sampler"):
        resumed(sampler, {**position(sampler), **change}, 0)


PLACES = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 4)), min_size=1, max_size=3, unique_by=lambda one: one[0]
)


@settings(max_examples=examples(30))
@given(
    changes=st.lists(st.tuples(st.integers(1, 3000), PLACES, st.booleans(), st.booleans()), max_size=4),
    places=st.lists(st.integers(0, 12_000), min_size=1, max_size=3),
)
def test_schedules_that_are_set_while_a_pass_is_read_apply_after_a_resume_too(changes, places):
    mixture = two(40_000, [1, 1], 15_000)
    keys, order = iter(mixture), []
    for count, ahead, linear, replace in changes:
        order += islice(keys, count)
        first = max((len(order) + 255) // 256 * 256, 4096)  # what comes before it may have been computed
        pairs = [(first + place, [share, 4 - share]) for place, share in ahead]
        with contextlib.suppress(ValueError):  # more was computed
            mixture.schedule(pairs, linear and len(pairs) > 1, replace)
    order += keys
    for place in places:
        again = resumed(two(40_000, [1, 1], 15_000), position(mixture, 0, place), place)
        assert list(islice(again, 3000)) == order[place : place + 3000]


def test_a_linear_change_that_has_started_ends_at_its_place_if_the_schedule_is_replaced():
    mixture = MixtureSampler([9000, 9000], weights=[1, 0], num_samples=9000, seed=0)
    mixture.schedule([(4096, [1, 0]), (6000, [0, 1])], linear=True)
    order = iter(mixture)
    head = list(islice(order, 4500))
    mixture.schedule([(8000, [1, 0])], replace=True)
    source = np.array([*head, *order]) // 9000
    assert source[6000:8000].tolist() == [1] * 2000
    assert source[8000:].tolist() == [0] * 1000
